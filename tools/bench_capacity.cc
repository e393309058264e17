// quire bench capacity: how many tokens the KV pool really holds, and what happens when it is full.
//
// First the pool that a server would get: allocated after everything else is in place, every page
// of it written and read back. Then, if asked, requests through the engine in a pool of a given
// size: so many run at once, and the next one waits or is refused.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/service.h"
#include "tools/bench_commands.h"
#include "tools/bench_model.h"
#include "tools/engine_source.h"
#include "tools/memory_words.h"
#include "tools/option_value.h"

namespace quire {

namespace {

struct CapacityOptions {
  std::vector<KvFormat> kv_formats;
  double mem_fraction = kMemFraction;
  int32_t running_requests = 64;
  int64_t kv_bytes = 0;  // > 0: of the pool of the second part
  int32_t request_tokens = 20'992;
  int32_t output_tokens = 256;
};

class EndSink final : public OutputSink {
 public:
  explicit EndSink(BoundedQueue<FinishReason>& ends) : ends_(ends) {}
  void on_output(RequestOutput output) override {
    // The queue has room for every request.
    if (output.finish) CHECK(ends_.try_push(FinishReason(*output.finish)));
  }

 private:
  BoundedQueue<FinishReason>& ends_;
};

Json measure_pool(ModelEngine& engine) {
  const KvPageLayout& layout = engine.model->kv_layout();
  ModelExecutor& executor = *engine.executor;
  int64_t bad_words = 0;
  SteadyClock clock;
  const int64_t begin_us = clock.now_us();
  for (const uint64_t seed : {1, 2}) {
    bad_words +=
        count_bad_words(*engine.loaded.backend, executor.pool(), executor.pool_bytes(), seed);
  }
  const int64_t pages = executor.pool_bytes() / layout.page_bytes - 1;  // less the null page
  return {{"kv", std::string(name(layout.format))},
          {"tokens", pages * layout.page_tokens},
          {"pages", pages},
          {"page_bytes", layout.page_bytes},
          {"pool_bytes", executor.pool_bytes()},
          {"passes", 2},
          {"bad_words", bad_words},
          {"seconds", static_cast<double>(clock.now_us() - begin_us) * 1e-6},
          {"startup", engine.loaded.startup.json()}};
}

// Requests until one is refused: as many as run at once, and one that waits.
class Admission {
 public:
  Admission(const CapacityOptions& options, ModelEngine& engine)
      : options_(options),
        vocab_(static_cast<uint64_t>(engine.config.vocab_size)),
        log_(LogLevel::warning, LogFormat::text),
        ends_(2 * static_cast<size_t>(engine.config.running_requests_max +
                                      engine.config.queued_requests_max)),
        service_(engine.config, *engine.executor, clock_, log_) {}

  // `n_fit`: how many the pool has pages for.
  Result<Json> run(int32_t n_fit) {
    const int64_t begin_us = clock_.now_us();
    for (int32_t i = 0; i < n_fit; ++i) TRY(submit());
    int32_t running_max = 0;
    Json waiting = nullptr;
    std::string refusal;
    size_t ended = 0;
    size_t expected = static_cast<size_t>(n_fit);
    bool all_right = true;
    while (ended < expected) {
      const std::optional<FinishReason> end = ends_.pop_for(std::chrono::milliseconds(20));
      const EngineStats stats = service_.stats();
      running_max = std::max(running_max, stats.running);
      if (waiting.is_null() && stats.running == n_fit) {
        // Everything that fits runs: the next ones wait, until one is refused.
        while (refusal.empty()) {
          const Result<RequestId> next = submit();
          if (next.ok()) ++expected;
          if (!next.ok()) refusal = next.error().message;
        }
        const EngineStats full = stats_with(static_cast<int32_t>(expected));
        waiting = {{"running", full.running}, {"queued", full.queued}};
      }
      if (!end) continue;
      ++ended;
      all_right = all_right && *end == FinishReason::length;
    }
    const EngineStats stats = service_.stats();
    return Json{{"fit", n_fit},
                {"running_max", running_max},
                {"when_full", waiting},
                {"refusal", refusal},
                {"finished", ended},
                {"all_right", all_right},
                {"preemptions", stats.preemptions},
                {"audit", service_.audit().ok() ? "clean" : "corrupt"},
                {"seconds", static_cast<double>(clock_.now_us() - begin_us) * 1e-6}};
  }

 private:
  // The counters are those of the last step, which a long prompt makes last: waits until they tell
  // of all `n_requests`, 10 s at the most.
  EngineStats stats_with(int32_t n_requests) {
    EngineStats stats = service_.stats();
    for (int i = 0; i < 500 && stats.running + stats.queued < n_requests; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      stats = service_.stats();
    }
    return stats;
  }
  Result<RequestId> submit() {
    GenerateRequest request{.max_new_tokens = options_.output_tokens};
    request.sampling.temperature = 0;
    for (int32_t i = 0; i < options_.request_tokens - options_.output_tokens; ++i) {
      request.prompt.push_back(static_cast<Token>(rng_.next_below(vocab_)));
    }
    return service_.submit(std::move(request), std::make_unique<EndSink>(ends_));
  }

  const CapacityOptions& options_;
  const uint64_t vocab_;
  Rng rng_{7};
  SteadyClock clock_;
  Log log_;
  BoundedQueue<FinishReason> ends_;
  EngineService service_;  // last: its end reports to the queue above
};

// The engine goes, the weights stay.
LoadedModel take_back(ModelEngine engine) {
  engine.executor.reset();
  engine.model.reset();
  return std::move(engine.loaded);
}

Result<Json> run_bench_capacity(const CLI::App& command) {
  CapacityOptions options{.kv_formats = TRY(read_kv_formats(command))};
  options.mem_fraction = option_value(command, "--mem-fraction-static", options.mem_fraction);
  options.running_requests =
      option_value(command, "--max-running-requests", options.running_requests);
  options.kv_bytes = option_value(command, "--kv-bytes", options.kv_bytes);
  options.request_tokens = option_value(command, "--request-tokens", options.request_tokens);
  options.output_tokens = option_value(command, "--output-len", options.output_tokens);
  if (options.output_tokens >= options.request_tokens) {
    return invalid_argument("--output-len: expected less than --request-tokens");
  }
  const ModelSource source = TRY(read_model_source(command));
  LoadedModel loaded = TRY(load_model(source));
  Json report = {{"model", loaded.dir},
                 {"backend", std::string(loaded.backend->name())},
                 {"weights", std::string(name(loaded.config.weights.scheme))},
                 {"caveat", loaded.caveat()},
                 {"pools", Json::array()},
                 {"admission", Json::array()}};
  for (const KvFormat kv_format : options.kv_formats) {
    const EngineSettings all_that_is_left{.kv_format = kv_format,
                                          .running_requests_max = options.running_requests,
                                          .mem_fraction = options.mem_fraction};
    ModelEngine engine = TRY(make_model_engine(std::move(loaded), all_that_is_left));
    report["pools"].push_back(measure_pool(engine));
    loaded = take_back(std::move(engine));
    if (options.kv_bytes == 0) continue;
    const KvPageLayout layout = loaded.config.kv_layout(kv_format);
    const int64_t pages = options.kv_bytes / layout.page_bytes - 1;
    const int64_t n_fit = pages / div_up(options.request_tokens, kPageTokens);
    const EngineSettings given{.kv_format = kv_format,
                               .context_tokens = options.request_tokens,
                               .running_requests_max = options.running_requests + 1,
                               .queued_requests_max = 1,
                               .kv_tokens = pages * kPageTokens,
                               .mem_fraction = options.mem_fraction,
                               .prefix_cache = false};
    engine = TRY(make_model_engine(std::move(loaded), given));
    Json result = TRY(Admission(options, engine).run(static_cast<int32_t>(n_fit)));
    result["kv"] = std::string(name(kv_format));
    result["pool_bytes"] = engine.executor->pool_bytes();
    result["request_tokens"] = options.request_tokens;
    report["admission"].push_back(std::move(result));
    loaded = take_back(std::move(engine));
  }
  return report;
}

void print_text(const Json& report) {
  print_bench_head(report);
  for (const Json& pool : report["pools"]) {
    std::printf(
        "%-9s pool %s: %lld tokens in %lld pages, each word written and read back %d "
        "times in %.1f s: %lld wrong\n",
        pool["kv"].get<std::string>().c_str(),
        human_bytes(pool["pool_bytes"].get<int64_t>()).c_str(),
        static_cast<long long>(pool["tokens"].get<int64_t>()),
        static_cast<long long>(pool["pages"].get<int64_t>()), pool["passes"].get<int>(),
        pool["seconds"].get<double>(), static_cast<long long>(pool["bad_words"].get<int64_t>()));
  }
  for (const Json& full : report["admission"]) {
    std::printf(
        "%-9s pool of %s, requests of %d tokens: %d fit, %d ran at once; then %s, the next was "
        "refused (%s); all ended in %.1f s, %s, %llu preemptions, audit %s\n",
        full["kv"].get<std::string>().c_str(),
        human_bytes(full["pool_bytes"].get<int64_t>()).c_str(), full["request_tokens"].get<int>(),
        full["fit"].get<int>(), full["running_max"].get<int>(), full["when_full"].dump().c_str(),
        full["refusal"].get<std::string>().c_str(), full["seconds"].get<double>(),
        full["all_right"].get<bool>() ? "all whole" : "NOT all whole",
        static_cast<unsigned long long>(full["preemptions"].get<uint64_t>()),
        full["audit"].get<std::string>().c_str());
  }
}

}  // namespace

void add_bench_capacity(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* capacity =
      bench.add_subcommand("capacity", "Tokens the pool really holds, and what a full one does");
  add_bench_model_flags(*capacity);
  const auto add = [capacity](const char* name, const std::string& help) {
    return capacity->add_option(name, help);
  };
  add("--mem-fraction-static", "Of a device's memory, for all of it")->check(CLI::Range(0.1, 1.0));
  add("--max-running-requests", "The engine is sized for so many; default 64")
      ->check(CLI::Range(1, 1024));
  add("--kv-bytes", "Fill a pool of so many bytes with requests, too")->check(CLI::PositiveNumber);
  add("--request-tokens", "Of such a request, prompt and answer; default 20992")
      ->check(CLI::Range(2, 1 << 20));
  add("--output-len", "Tokens of its answer; default 256")->check(CLI::Range(1, 1 << 20));
  capacity->add_flag("--json")->description("One JSON object on standard output");
  capacity->callback([capacity, exit_code] {
    *exit_code = end_bench(*capacity, run_bench_capacity(*capacity), print_text);
  });
}

}  // namespace quire
