// quire bench offline: how fast the engine is on this machine, without HTTP.
//
// Random prompts of one length, a fixed number of tokens each (no stop tokens), a fixed number of
// requests in flight, through the same EngineService that a server uses. One request is run and
// thrown away before each measurement.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/service.h"
#include "tools/bench_commands.h"
#include "tools/distribution.h"
#include "tools/engine_source.h"
#include "tools/option_value.h"

namespace quire {

namespace {

struct BenchOptions {
  ModelSource source;
  std::string kv_format = "auto";
  int32_t input_len = 128;
  int32_t output_len = 128;
  int32_t n_prompts = 0;  // 0: four for each that is in flight
  std::vector<int32_t> concurrency{1, 16};
  int32_t chunked_prefill_tokens = 0;
  uint64_t seed = 1;
  bool json = false;
};

// One request's times, in microseconds of the clock.
struct Times {
  int64_t submitted = 0;
  int64_t first = 0;
  int64_t last = 0;
  int32_t n_tokens = 0;
  bool failed = false;
};

// Writes down when tokens come, and reports the request when it is over.
class TimingSink final : public OutputSink {
 public:
  TimingSink(const Clock& clock, BoundedQueue<Times>& done, int64_t submitted)
      : clock_(clock), done_(done) {
    times_.submitted = submitted;
  }
  void on_output(RequestOutput output) override {
    times_.last = clock_.now_us();
    if (times_.n_tokens == 0) times_.first = times_.last;
    times_.n_tokens += static_cast<int32_t>(output.tokens.size());
    if (!output.finish) return;
    times_.failed = *output.finish != FinishReason::length;
    // The queue has room for every request of a run.
    CHECK(done_.try_push(times_));
  }

 private:
  const Clock& clock_;
  BoundedQueue<Times>& done_;
  Times times_;
};

class Bench {
 public:
  Bench(const BenchOptions& options, ModelEngine& engine)
      : options_(options),
        vocab_size_(engine.config.vocab_size),
        log_(LogLevel::warning, LogFormat::text),
        rng_(options.seed),
        service_(engine.config, *engine.executor, clock_, log_) {}

  Result<Json> measure(int32_t concurrency) {
    TRY_OK(run(1, 1, nullptr));
    const int32_t n = options_.n_prompts > 0 ? options_.n_prompts : 4 * concurrency;
    std::vector<Times> times;
    const int64_t begin = clock_.now_us();
    TRY_OK(run(n, concurrency, &times));
    const double seconds = static_cast<double>(clock_.now_us() - begin) * 1e-6;
    return report(concurrency, times, seconds);
  }

 private:
  // `n` requests, `concurrency` of them in flight.
  Status run(int32_t n, int32_t concurrency, std::vector<Times>* times) {
    BoundedQueue<Times> done(static_cast<size_t>(n));
    int32_t submitted = 0;
    for (int32_t ended = 0; ended < n;) {
      while (submitted < n && submitted - ended < concurrency) {
        GenerateRequest request{.max_new_tokens = options_.output_len};
        request.sampling.temperature = 0;
        for (int32_t i = 0; i < options_.input_len; ++i) {
          request.prompt.push_back(
              static_cast<Token>(rng_.next_below(static_cast<uint64_t>(vocab_size_))));
        }
        TRY(service_.submit(std::move(request),
                            std::make_unique<TimingSink>(clock_, done, clock_.now_us())));
        ++submitted;
      }
      const std::optional<Times> one = done.pop_for(std::chrono::seconds(1));
      if (!one) continue;
      ++ended;
      if (one->failed) return corruption("a request failed; the log says why");
      if (times != nullptr) times->push_back(*one);
    }
    return {};
  }

  static Json report(int32_t concurrency, const std::vector<Times>& times, double seconds) {
    int64_t tokens = 0;
    std::vector<double> ttft_ms;
    std::vector<double> tpot_ms;
    for (const Times& t : times) {
      tokens += t.n_tokens;
      ttft_ms.push_back(static_cast<double>(t.first - t.submitted) * 1e-3);
      if (t.n_tokens < 2) continue;
      tpot_ms.push_back(static_cast<double>(t.last - t.first) * 1e-3 / (t.n_tokens - 1));
    }
    return {{"concurrency", concurrency},
            {"requests", times.size()},
            {"seconds", seconds},
            {"output_tokens", tokens},
            {"output_tokens_per_second", static_cast<double>(tokens) / seconds},
            {"ttft_ms", describe_distribution(std::move(ttft_ms))},
            {"tpot_ms", describe_distribution(std::move(tpot_ms))}};
  }

  const BenchOptions& options_;
  const int32_t vocab_size_;
  SteadyClock clock_;
  Log log_;
  Rng rng_;
  EngineService service_;
};

// Bytes of the safetensors files of a model folder.
int64_t model_bytes(const std::string& dir) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts it in KiB
}

void print_text(const Json& report) {
  for (const Json& run : report["runs"]) {
    std::printf("%3d at once: %8.1f tok/s   first token %8.2f ms   a token %7.3f ms (p95 %.3f)\n",
                run["concurrency"].get<int>(), run["output_tokens_per_second"].get<double>(),
                run["ttft_ms"]["mean"].get<double>(), run["tpot_ms"]["mean"].get<double>(),
                run["tpot_ms"]["p95"].get<double>());
  }
  std::printf("model %s, pool %s, peak memory %s\n",
              human_bytes(report["model_bytes"].get<int64_t>()).c_str(),
              human_bytes(report["pool_bytes"].get<int64_t>()).c_str(),
              human_bytes(report["peak_rss_bytes"].get<int64_t>()).c_str());
}

Result<BenchOptions> read_options(const CLI::App& command) {
  BenchOptions options;
  options.source = TRY(read_model_source(command));
  options.kv_format = option_value(command, "--kv-cache-dtype", options.kv_format);
  options.input_len = option_value(command, "--input-len", options.input_len);
  options.output_len = option_value(command, "--output-len", options.output_len);
  options.n_prompts = option_value(command, "--num-prompts", options.n_prompts);
  options.concurrency = option_value(command, "--concurrency", options.concurrency);
  options.chunked_prefill_tokens =
      option_value(command, "--chunked-prefill-size", options.chunked_prefill_tokens);
  options.seed = option_value(command, "--seed", options.seed);
  options.json = command.count("--json") > 0;
  return options;
}

Status run_bench(const CLI::App& command) {
  const BenchOptions options = TRY(read_options(command));
  const int32_t widest = *std::max_element(options.concurrency.begin(), options.concurrency.end());
  const int32_t tokens = options.input_len + options.output_len;
  const KvFormat kv_format = TRY(parse_kv_format(options.kv_format));
  LoadedModel loaded = TRY(load_model(options.source));
  ModelEngine engine = TRY(make_model_engine(
      std::move(loaded), {.kv_format = kv_format,
                          .context_tokens = tokens,
                          .running_requests_max = widest,
                          .queued_requests_max = 1,
                          .chunked_prefill_tokens = options.chunked_prefill_tokens}));
  Json report = {{"model", options.source.dir},
                 {"kv", std::string(name(kv_format))},
                 {"weights", std::string(name(engine.loaded.config.weights.scheme))},
                 {"backend", std::string(engine.loaded.backend->name())},
                 {"input_len", options.input_len},
                 {"output_len", options.output_len},
                 {"chunked_prefill_tokens", engine.config.chunked_prefill_tokens},
                 {"runs", Json::array()}};
  {
    Bench bench(options, engine);
    for (const int32_t concurrency : options.concurrency) {
      report["runs"].push_back(TRY(bench.measure(concurrency)));
    }
  }
  report["model_bytes"] = model_bytes(options.source.dir);
  report["pool_bytes"] = engine.executor->pool_bytes();
  report["peak_rss_bytes"] = peak_rss_bytes();
  if (options.json) {
    std::printf("%s\n", dump_json(report).c_str());
  } else {
    print_text(report);
  }
  return {};
}

}  // namespace

void add_bench_offline(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* offline = bench.add_subcommand("offline", "The engine alone, without HTTP");
  add_model_source_flags(*offline);
  offline->add_option("--input-len", "Prompt tokens of a request; default 128")
      ->check(CLI::Range(1, 1 << 20));
  offline->add_option("--output-len", "Tokens to generate for a request; default 128")
      ->check(CLI::Range(1, 1 << 20));
  offline->add_option("--num-prompts", "Requests; default: 4 for each in flight")
      ->check(CLI::Range(1, 1 << 20));
  offline->add_option("--concurrency", "Requests in flight, a run for each; default 1,16")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(1, 1024));
  offline->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  offline->add_option("--chunked-prefill-size", "Prompt tokens a step, at most")
      ->check(CLI::Range(1, 1 << 20));
  offline->add_option("--seed", "Of the random prompts; default 1");
  offline->add_flag("--json")->description("One JSON object on standard output");
  offline->callback([offline, exit_code] {
    const Status status = run_bench(*offline);
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
