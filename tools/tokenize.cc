// quire tokenize: text to token ids and back, one JSON object a line, and how fast.
//
// In {"text": "..."}, out {"ids": [...]}; with --decode the other way. Special tokens are never
// recognised in text, and are written by name when decoded. The first bad line ends it.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/utf8_assembler.h"
#include "tools/commands.h"

namespace quire {

namespace {

// A line may be a whole book: the limits that guard a server do not fit a tool.
constexpr size_t kLineBytesMax = size_t{1} << 30;
constexpr JsonLimits kLineLimits = {
    .bytes_max = kLineBytesMax, .nodes_max = 100'000'000, .string_bytes_max = kLineBytesMax};

struct TokenizeOptions {
  std::string model_path;
  std::string bench_file;
  bool decode = false;
  bool json = false;
};

Result<Json> encode_line(const Tokenizer& tokenizer, const Json& line) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string()) return invalid_argument("text: expected a string");
  Json out;
  out["ids"] = tokenizer.encode(text->get_ref<const std::string&>());
  return out;
}

Result<Json> decode_line(const Tokenizer& tokenizer, const Json& line) {
  const auto ids = line.find("ids");
  if (ids == line.end() || !ids->is_array()) return invalid_argument("ids: expected an array");
  Utf8Assembler assembler;
  std::string text;
  for (size_t i = 0; i < ids->size(); ++i) {
    const Json& id = (*ids)[i];
    const bool fits = id.is_number_unsigned() &&
                      id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocab_size());
    if (!fits) {
      return invalid_argument(
          format("ids[%zu]: expected an integer from 0 to %d", i, tokenizer.vocab_size() - 1));
    }
    assembler.push(tokenizer.token_bytes(id.get<Token>()), &text);
  }
  assembler.finish(&text);
  Json out;
  out["text"] = std::move(text);
  return out;
}

Status convert_lines(const Tokenizer& tokenizer, bool decode) {
  std::string line;
  for (size_t n = 1; std::getline(std::cin, line); ++n) {
    if (line.empty()) continue;
    const auto parsed = parse_json(line, kLineLimits);
    if (!parsed.ok()) return invalid_argument(format("line %zu: ", n) + parsed.error().message);
    const Json& value = parsed.value();
    if (!value.is_object()) return invalid_argument(format("line %zu: expected an object", n));
    const auto out = decode ? decode_line(tokenizer, value) : encode_line(tokenizer, value);
    if (!out.ok()) return invalid_argument(format("line %zu: ", n) + out.error().message);
    std::cout << dump_json(out.value()) << '\n';
  }
  std::cout.flush();
  if (!std::cout) return unavailable("standard output refused the text");
  return {};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Encodes the file again and again for two seconds, and reports the median pass: by the processor's
// time, which is what one core can do, and by the clock on the wall, which others share.
Status measure(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  constexpr int64_t kLeastUs = 2'000'000;
  constexpr size_t kLeastPasses = 3;
  const std::string text = TRY(read_text_file(options.bench_file, kLineBytesMax));
  if (text.empty()) return invalid_argument(options.bench_file + ": empty");
  const auto bytes = static_cast<double>(text.size());
  const SteadyClock wall;
  const int64_t begin_us = wall.now_us();
  std::vector<double> cpu_rates;   // MB/s
  std::vector<double> wall_rates;  // MB/s
  size_t n_tokens = 0;
  while (cpu_rates.size() < kLeastPasses || wall.now_us() - begin_us < kLeastUs) {
    const int64_t start_us = wall.now_us();
    const std::clock_t start = std::clock();
    n_tokens = tokenizer.encode(text).size();
    const auto ticks = static_cast<double>(std::max<std::clock_t>(1, std::clock() - start));
    const auto wall_us = static_cast<double>(std::max<int64_t>(1, wall.now_us() - start_us));
    cpu_rates.push_back(bytes / (ticks * 1e6 / CLOCKS_PER_SEC));
    wall_rates.push_back(bytes / wall_us);
  }
  Json out;
  out["mb_per_s"] = median(cpu_rates);
  out["mb_per_s_wall"] = median(wall_rates);
  out["bytes"] = text.size();
  out["tokens"] = n_tokens;
  out["passes"] = cpu_rates.size();
  if (options.json) {
    std::cout << dump_json(out) << '\n';
  } else {
    std::cout << format("%.2f MB/s of one core (%.2f MB/s by the wall clock), ", median(cpu_rates),
                        median(wall_rates))
              << format("%zu bytes, %zu tokens, median of %zu passes\n", text.size(), n_tokens,
                        cpu_rates.size());
  }
  return {};
}

Status tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = TRY(Tokenizer::load(options.model_path));
  if (!options.bench_file.empty()) return measure(tokenizer, options);
  return convert_lines(tokenizer, options.decode);
}

}  // namespace

void add_tokenize_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids and back, as JSON lines");
  command->add_option("--model-path", "Folder with the tokenizer's files")->required();
  command->add_flag("--decode")->description("Read {\"ids\"}, write {\"text\"}");
  command->add_option("--bench", "Measure the encoding of this file instead");
  command->add_flag("--json")->description("Report --bench as JSON");
  command->callback([command, exit_code] {
    TokenizeOptions options;
    options.model_path = command->get_option("--model-path")->as<std::string>();
    if (command->count("--bench") > 0) {
      options.bench_file = command->get_option("--bench")->as<std::string>();
    }
    options.decode = command->count("--decode") > 0;
    options.json = command->count("--json") > 0;
    const Status status = tokenize(options);
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
