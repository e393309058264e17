// quire bench start: how long a model takes from nothing to its first token, and what it leaves of
// the device's memory. Everything that `quire serve` does but its port and its tokenizer.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/service.h"
#include "tools/bench_commands.h"
#include "tools/engine_source.h"
#include "tools/option_value.h"

namespace quire {

namespace {

constexpr int32_t kPromptTokens = 64;

struct StartOptions {
  ModelSource source;
  EngineSettings settings;
};

// Passes on how the request ended, and its only token.
class FirstToken final : public OutputSink {
 public:
  struct End {
    FinishReason reason;
    Token token = -1;
  };
  explicit FirstToken(BoundedQueue<End>& done) : done_(done) {}
  void on_output(RequestOutput output) override {
    if (!output.tokens.empty()) token_ = output.tokens.front().token;
    if (output.finish) CHECK(done_.try_push({*output.finish, token_}));
  }

 private:
  BoundedQueue<End>& done_;
  Token token_ = -1;
};

// The token that follows a fixed prompt: the same for the same weights, however they came.
Result<Token> first_token(ModelEngine& engine) {
  SteadyClock clock;
  Log log(LogLevel::warning, LogFormat::text);
  EngineService service(engine.config, *engine.executor, clock, log);
  BoundedQueue<FirstToken::End> done(1);
  GenerateRequest request{.max_new_tokens = 1};
  request.sampling.temperature = 0;
  Rng rng(1);
  for (int32_t i = 0; i < kPromptTokens; ++i) {
    request.prompt.push_back(
        static_cast<Token>(rng.next_below(static_cast<uint64_t>(engine.config.vocab_size))));
  }
  TRY(service.submit(std::move(request), std::make_unique<FirstToken>(done)));
  std::optional<FirstToken::End> end;
  while (!end) end = done.pop_for(std::chrono::seconds(1));
  if (end->reason != FinishReason::length) {
    return corruption("the request failed; the log says why");
  }
  return end->token;
}

Result<Json> run(const StartOptions& options) {
  LoadedModel model = TRY(load_model(options.source));
  ModelEngine engine = TRY(make_model_engine(std::move(model), options.settings));
  const Token token = TRY(first_token(engine));
  LoadedModel& loaded = engine.loaded;
  loaded.startup.end_step("first token", loaded.backend.get());
  const int64_t tokens = int64_t{engine.config.n_pages - 1} * engine.config.page_tokens;
  Json lines = Json::array();
  for (const std::string& line : loaded.startup.lines()) lines.push_back(line);
  for (const std::string& message : loaded.startup.warnings()) {
    lines.push_back("warning: " + message);
  }
  return Json{{"model", options.source.dir},
              {"caveat", loaded.caveat()},
              {"backend", std::string(loaded.backend->name())},
              {"kv_cache_dtype", std::string(name(options.settings.kv_format))},
              {"max_total_num_tokens", tokens},
              {"context_len", engine.config.context_tokens},
              {"chunked_prefill_size", engine.config.chunked_prefill_tokens},
              {"max_running_requests", engine.config.running_requests_max},
              {"weight_bytes", loaded.weights->borrowed_bytes + loaded.weights->copied_bytes +
                                   loaded.weights->packed_bytes},
              {"pool_bytes", engine.executor->pool_bytes()},
              {"first_token", token},
              {"startup", loaded.startup.json()},
              {"lines", std::move(lines)}};
}

void print_text(const Json& report) {
  if (const auto caveat = report["caveat"].get<std::string>(); !caveat.empty()) {
    std::printf("%s\n", caveat.c_str());
  }
  std::printf(
      "max_total_num_tokens=%lld, chunked_prefill_size=%d, max_running_requests=%d, "
      "context_len=%d\n",
      static_cast<long long>(report["max_total_num_tokens"].get<int64_t>()),
      report["chunked_prefill_size"].get<int>(), report["max_running_requests"].get<int>(),
      report["context_len"].get<int>());
  std::printf("first token %d, weights %s\n", report["first_token"].get<int>(),
              human_bytes(report["weight_bytes"].get<int64_t>()).c_str());
  for (const Json& line : report["lines"]) std::printf("%s\n", line.get<std::string>().c_str());
}

Result<StartOptions> read_options(const CLI::App& command) {
  StartOptions out{.source = TRY(read_model_source(command)), .settings = {}};
  EngineSettings& settings = out.settings;
  settings.kv_format =
      TRY(parse_kv_format(option_value<std::string>(command, "--kv-cache-dtype", "auto")));
  settings.pool_size = PoolSize::all_there_is;
  settings.running_requests_max = option_value(command, "--max-running-requests", 64);
  settings.context_tokens = option_value(command, "--context-length", settings.context_tokens);
  settings.chunked_prefill_tokens =
      option_value(command, "--chunked-prefill-size", settings.chunked_prefill_tokens);
  settings.kv_tokens = option_value(command, "--max-total-tokens", settings.kv_tokens);
  settings.mem_fraction = option_value(command, "--mem-fraction-static", settings.mem_fraction);
  return out;
}

}  // namespace

void add_bench_start(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* command =
      bench.add_subcommand("start", "From nothing to the first token, and what memory is left");
  add_model_source_flags(*command);
  command->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  command->add_option("--max-running-requests", "Requests that generate at once (64)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--context-length", "Longest sequence (default: the model's)")
      ->check(CLI::Range(2, 1 << 24));
  command->add_option("--chunked-prefill-size", "Prompt tokens of one step")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--max-total-tokens", "Tokens of the KV pool, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--mem-fraction-static", "Of a device's memory, for all of it (0.95)")
      ->check(CLI::Range(0.01, 1.0));
  command->add_flag("--json")->description("One JSON object on standard output");
  command->callback([command, exit_code] {
    const Result<StartOptions> options = read_options(*command);
    const Result<Json> report = options.ok() ? run(options.value()) : Result<Json>(options.error());
    if (!report.ok()) {
      *exit_code = fail(report.error());
      return;
    }
    if (command->count("--json") > 0) {
      std::printf("%s\n", dump_json(report.value()).c_str());
    } else {
      print_text(report.value());
    }
    *exit_code = ExitCode::ok;
  });
}

}  // namespace quire
