// quire logits: token ids in, the logits after the last of them out, as JSON lines. No engine: one
// sequence at a time, straight through the model.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "model/single_sequence.h"
#include "tools/commands.h"
#include "tools/model_source.h"
#include "tools/option_value.h"

namespace quire {

namespace {

constexpr int64_t kChunkTokens = 256;

struct LogitsOptions {
  ModelSource source;
  std::string kv_format = "auto";
};

// {"ids": [...]} -> ids, each with a row in the embedding.
Result<std::vector<Token>> parse_line(const std::string& line, const ModelConfig& config) {
  const Json value = TRY(parse_json(line));
  const auto ids = value.is_object() ? value.find("ids") : value.end();
  if (ids == value.end() || !ids->is_array() || ids->empty()) {
    return invalid_argument("expected {\"ids\": [...]} with at least one id");
  }
  if (static_cast<int64_t>(ids->size()) > config.positions_max) {
    return invalid_argument(format("%zu ids, expected at most %lld", ids->size(),
                                   static_cast<long long>(config.positions_max)));
  }
  std::vector<Token> out;
  for (const Json& id : *ids) {
    const bool is_token = id.is_number_unsigned() &&
                          id.get<uint64_t>() < static_cast<uint64_t>(config.shape.vocab_size);
    if (!is_token) {
      return invalid_argument(format("id %s, expected an integer in [0, %lld)",
                                     excerpt(dump_json(id)).c_str(),
                                     static_cast<long long>(config.shape.vocab_size)));
    }
    out.push_back(id.get<Token>());
  }
  return out;
}

Result<std::string> last_logits(const LoadedModel& loaded, Model& model,
                                std::span<const Token> ids) {
  SingleSequence sequence = TRY(
      SingleSequence::make(model, *loaded.backend, static_cast<int64_t>(ids.size()), kChunkTokens));
  std::vector<float> logits;
  while (!ids.empty()) {
    const std::span<const Token> chunk = ids.first(std::min<size_t>(ids.size(), kChunkTokens));
    ids = ids.subspan(chunk.size());
    logits = sequence.feed(chunk, ids.empty() ? 1 : 0);
  }
  std::string out = "{\"logits\":[";
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) return corruption(format("logit %zu is not finite", i));
    // Nine digits give back every float32 exactly.
    out += format(i == 0 ? "%.9g" : ",%.9g", static_cast<double>(logits[i]));
  }
  return out + "]}";
}

Status run(const LogitsOptions& options) {
  const KvFormat kv_format = TRY(parse_kv_format(options.kv_format));
  const LoadedModel loaded = TRY(load_model(options.source));
  const std::unique_ptr<Model> model = TRY(
      loaded.make_model({.tokens_max = kChunkTokens, .logits_max = 1}, {.kv_format = kv_format}));
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    const Result<std::vector<Token>> ids = parse_line(line, loaded.config);
    if (!ids.ok()) {
      return invalid_argument(
          format("line %lld: %s", static_cast<long long>(number), ids.error().message.c_str()));
    }
    std::cout << TRY(last_logits(loaded, *model, ids.value())) << '\n' << std::flush;
  }
  return {};
}

}  // namespace

void add_logits_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand(
      "logits", "{\"ids\"} in, {\"logits\"} of the last position out, JSON lines");
  add_model_source_flags(*command);
  command->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  command->callback([command, exit_code] {
    LogitsOptions options;
    options.kv_format = option_value(*command, "--kv-cache-dtype", options.kv_format);
    const Result<ModelSource> source = read_model_source(*command);
    if (source.ok()) options.source = source.value();
    const Status status = source.ok() ? run(options) : Status(source.error());
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
