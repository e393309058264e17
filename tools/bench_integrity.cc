// quire bench integrity: what the checks of docs/integrity.md cost a decode step.
//
// One engine, whose checks change every so many steps: off, tags and full in turn (and each check
// alone), so that all see the same machine. Prompts are there at once (ready_prompts.h) over pages
// of random rows; requests come and go, and so do their pages. A step's time is that between two
// returns of Engine::step. Steps beside a prompt or a change of the checks are not counted.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "base/rng.h"
#include "tools/bench_commands.h"
#include "tools/bench_model.h"
#include "tools/distribution.h"
#include "tools/engine_source.h"
#include "tools/option_value.h"
#include "tools/ready_prompts.h"
#include "tools/synthetic_step.h"

namespace quire {

namespace {

struct IntegrityOptions {
  std::vector<int32_t> batches{1, 8, 32, 64};
  int32_t context = 8192;
  int32_t output_len = 1000;
  int32_t steps = 2000;   // of each setting
  int32_t every = 50;     // steps between changes
  int32_t seconds = 600;  // of a batch, at most
  bool each_alone = false;
  bool json = false;
};

struct Setting {
  std::string name;
  IntegrityConfig checks;
};

std::vector<Setting> settings_of(bool each_alone) {
  std::vector<Setting> settings;
  for (const IntegrityLevel level :
       {IntegrityLevel::off, IntegrityLevel::tags, IntegrityLevel::full}) {
    settings.push_back({std::string(name(level)), integrity_config(level)});
  }
  if (!each_alone) return settings;
  const IntegrityConfig off = integrity_config(IntegrityLevel::off);
  const IntegrityConfig full = integrity_config(IntegrityLevel::full);
  const auto alone = [&](const char* what, auto IntegrityConfig::*check) {
    IntegrityConfig checks = off;
    checks.*check = full.*check;
    settings.push_back({what, checks});
  };
  alone("writes", &IntegrityConfig::writes);
  alone("seals", &IntegrityConfig::seals);
  alone("places", &IntegrityConfig::places);
  alone("poison", &IntegrityConfig::poison);
  alone("scrub", &IntegrityConfig::scrub_pages);
  alone("audit", &IntegrityConfig::audit_steps);
  return settings;
}

// What a setting's steps took.
struct Measured {
  std::vector<double> steps_us;
  std::vector<double> blocks_us;  // the mean step of each turn
};

// Counts requests that have ended.
class CountingSink final : public OutputSink {
 public:
  struct Counts {
    int32_t ended = 0;
    int32_t failed = 0;
  };
  explicit CountingSink(Counts& counts) : counts_(counts) {}
  void on_output(RequestOutput output) override {
    if (!output.finish) return;
    ++counts_.ended;
    counts_.failed += *output.finish == FinishReason::failed ? 1 : 0;
  }

 private:
  Counts& counts_;
};

class IntegrityBench {
 public:
  IntegrityBench(const IntegrityOptions& options, ModelEngine& engine)
      : options_(options),
        settings_(settings_of(options.each_alone)),
        source_(engine),
        prompts_(*engine.executor, options.context),
        engine_(engine.config, prompts_, clock_, log_) {}

  // What hashing pages takes when nothing else runs: as for one that fills, and as for the prefix
  // hit of 8,192 tokens.
  Json time_seals() {
    constexpr int kRounds = 20;
    Json out = Json::array();
    const double page_bytes = static_cast<double>(source_.model->kv_layout().page_bytes);
    for (const int32_t n_pages : {1, 128}) {
      if (n_pages >= source_.config.n_pages) break;
      std::vector<SealTarget> targets;
      for (int32_t p = 1; p <= n_pages; ++p) targets.push_back({.page = PageId{p}, .logical = p});
      std::vector<double> times_us;
      for (int round = 0; round <= kRounds; ++round) {
        const int64_t begin = clock_.now_us();
        prompts_.collect_seals(prompts_.seal_pages(targets));
        times_us.push_back(static_cast<double>(clock_.now_us() - begin));
      }
      times_us.erase(times_us.begin());  // the first one finds nothing in place
      const Json us = describe_distribution(times_us);
      out.push_back({{"pages", n_pages},
                     {"us", us},
                     {"gb_per_second", 1e-3 * n_pages * page_bytes / us["median"].get<double>()}});
    }
    return out;
  }

  Result<Json> measure(int32_t batch) {
    const EngineStats before = engine_.stats();
    std::vector<Measured> measured(settings_.size());
    const int64_t deadline = clock_.now_us() + int64_t{options_.seconds} * 1'000'000;
    for (int32_t done = 0; done < options_.steps && clock_.now_us() < deadline;
         done += options_.every) {
      for (size_t i = 0; i < settings_.size(); ++i) {
        engine_.set_integrity(settings_[i].checks);
        take_turn(batch, &measured[i]);
        if (counts_.failed > 0) return corruption("a request failed; the log says why");
      }
    }
    engine_.abort_all();
    while (engine_.step()) continue;
    counts_ = {};
    in_flight_ = 0;
    return report(batch, measured, before, engine_.stats());
  }

 private:
  void add_request() {
    GenerateRequest request{.max_new_tokens = options_.output_len};
    request.sampling.temperature = 0;
    const auto vocab = static_cast<uint64_t>(source_.config.vocab_size);
    for (int32_t i = 0; i < options_.context; ++i) {
      request.prompt.push_back(static_cast<Token>(rng_.next_below(vocab)));
    }
    CHECK(engine_.add(std::move(request), std::make_unique<CountingSink>(counts_)).ok());
    ++in_flight_;
  }

  // One step with `batch` requests in flight: whether it had a row of each and no prompt.
  bool step(int32_t batch) {
    in_flight_ -= std::exchange(counts_.ended, 0);
    while (in_flight_ < batch) add_request();
    engine_.step();
    return prompts_.rows_of_last() == batch;
  }

  void take_turn(int32_t batch, Measured* measured) {
    // The first steps fill the overlap, and bring the mirror up to date.
    constexpr int32_t kUnsettled = 3;
    int32_t settled = -kUnsettled;
    double sum = 0;
    int32_t counted = 0;
    int64_t last = clock_.now_us();
    while (counted < options_.every && counts_.failed == 0) {
      settled = step(batch) ? settled + 1 : -kUnsettled;
      const int64_t now = clock_.now_us();
      if (settled > 0) {
        measured->steps_us.push_back(static_cast<double>(now - last));
        sum += measured->steps_us.back();
        ++counted;
      }
      last = now;
    }
    measured->blocks_us.push_back(sum / std::max(counted, 1));
  }

  // How `of` compares with `off`, turn by turn: above 1 is faster.
  static Json ratio(const std::vector<double>& off, const std::vector<double>& of) {
    std::vector<double> ratios;
    for (size_t i = 0; i < of.size(); ++i) ratios.push_back(off[i] / of[i]);
    std::ranges::sort(ratios);
    const auto n = static_cast<double>(ratios.size());
    double mean = 0;
    for (const double r : ratios) mean += r / n;
    double variance = 0;
    for (const double r : ratios) variance += (r - mean) * (r - mean) / std::max(n - 1, 1.0);
    const double half = 1.96 * std::sqrt(variance / n);
    return {{"mean", mean},
            {"low", mean - half},
            {"high", mean + half},
            {"median", ratios[ratios.size() / 2]},
            {"turns", ratios.size()}};
  }

  Json report(int32_t batch, const std::vector<Measured>& measured, const EngineStats& before,
              const EngineStats& after) const {
    Json out = {{"batch", batch},
                {"context", options_.context},
                {"page_checks", after.integrity_checked - before.integrity_checked},
                {"alarms", after.integrity_found.total() - before.integrity_found.total()},
                {"evicted_pages", after.evicted_pages - before.evicted_pages},
                {"settings", Json::array()}};
    const double off_p95 = describe_distribution(measured[0].steps_us)["p95"].get<double>();
    for (size_t i = 0; i < settings_.size(); ++i) {
      const Json steps = describe_distribution(measured[i].steps_us);
      out["settings"].push_back(
          {{"name", settings_[i].name},
           {"steps", measured[i].steps_us.size()},
           {"nodes", source_.executor->recorded_nodes(step_checks(settings_[i].checks), batch)},
           {"step_us", steps},
           {"tokens_per_second", 1e6 * batch / steps["mean"].get<double>()},
           {"throughput_over_off", ratio(measured[0].blocks_us, measured[i].blocks_us)},
           {"p95_over_off", off_p95 / steps["p95"].get<double>()}});
    }
    return out;
  }

  const IntegrityOptions& options_;
  const std::vector<Setting> settings_;
  ModelEngine& source_;
  SteadyClock clock_;
  Log log_{LogLevel::warning, LogFormat::text};
  Rng rng_{7};
  CountingSink::Counts counts_;
  int32_t in_flight_ = 0;
  ReadyPrompts prompts_;
  Engine engine_;
};

void print_text(const Json& report) {
  if (const auto caveat = report["caveat"].get<std::string>(); !caveat.empty()) {
    std::printf("%s\n", caveat.c_str());
  }
  for (const Json& seal : report["seals"]) {
    std::printf("seals of %d pages: %.0f us, %.0f GB/s\n", seal["pages"].get<int>(),
                seal["us"]["median"].get<double>(), seal["gb_per_second"].get<double>());
  }
  std::printf("%5s %-7s %6s %6s %9s %9s %9s %9s %9s  %s\n", "batch", "checks", "steps", "nodes",
              "mean us", "p50", "p95", "p99", "tok/s", "throughput and p95 over off");
  uint64_t checks = 0;
  uint64_t alarms = 0;
  for (const Json& point : report["points"]) {
    checks += point["page_checks"].get<uint64_t>();
    alarms += point["alarms"].get<uint64_t>();
    for (const Json& setting : point["settings"]) {
      const Json& us = setting["step_us"];
      const Json& over = setting["throughput_over_off"];
      std::printf("%5d %-7s %6d %6d %9.1f %9.0f %9.0f %9.0f %9.1f  %.4f (%.4f to %.4f) %.4f\n",
                  point["batch"].get<int>(), setting["name"].get<std::string>().c_str(),
                  setting["steps"].get<int>(), setting["nodes"].get<int>(),
                  us["mean"].get<double>(), us["median"].get<double>(), us["p95"].get<double>(),
                  us["p99"].get<double>(), setting["tokens_per_second"].get<double>(),
                  over["mean"].get<double>(), over["low"].get<double>(), over["high"].get<double>(),
                  setting["p95_over_off"].get<double>());
    }
  }
  std::printf("%llu page checks, %llu alarms\n", static_cast<unsigned long long>(checks),
              static_cast<unsigned long long>(alarms));
}

Result<Json> run_bench_integrity(const CLI::App& command) {
  IntegrityOptions options;
  options.batches = option_value(command, "--batch", options.batches);
  options.context = option_value(command, "--context", options.context);
  options.output_len = option_value(command, "--output-len", options.output_len);
  options.steps = option_value(command, "--steps", options.steps);
  options.every = option_value(command, "--every", options.every);
  options.seconds = option_value(command, "--seconds", options.seconds);
  options.each_alone = command.count("--each") > 0;
  const KvFormat kv_format =
      TRY(parse_kv_format(option_value<std::string>(command, "--kv-cache-dtype", "auto")));
  const int32_t widest = *std::ranges::max_element(options.batches);
  const int32_t tokens = options.context + options.output_len;
  // More than the requests need: a request is admitted when there is room to grow beside it, and
  // eviction is to have something to choose from.
  const int64_t request_tokens = round_up(tokens, kPageTokens) + 4 * kPageTokens;
  const ModelSource source = TRY(read_model_source(command));
  LoadedModel loaded = TRY(load_model(source));
  ModelEngine engine = TRY(make_model_engine(
      std::move(loaded),
      {.kv_format = kv_format,
       .context_tokens = tokens,
       .running_requests_max = widest,
       .queued_requests_max = widest,
       .kv_tokens = widest * request_tokens,
       .recorded_checks = {StepChecks::none, StepChecks::pages, StepChecks::pages_and_writes}}));
  TRY_OK(fill_with_random_rows(*engine.loaded.backend, {.data = engine.executor->pool(),
                                                        .n_pages = engine.config.n_pages,
                                                        .layout = &engine.model->kv_layout()}));
  Json report = {{"caveat", engine.loaded.caveat()},
                 {"kv", std::string(name(kv_format))},
                 {"points", Json::array()}};
  IntegrityBench bench(options, engine);
  report["seals"] = bench.time_seals();
  for (const int32_t batch : options.batches) {
    report["points"].push_back(TRY(bench.measure(batch)));
  }
  return report;
}

}  // namespace

void add_bench_integrity(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* integrity =
      bench.add_subcommand("integrity", "What the checks of cache pages cost a decode step");
  add_model_source_flags(*integrity);
  integrity->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  integrity->add_option("--batch", "Requests; default 1,8,32,64")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(1, 1024));
  integrity->add_option("--context", "Prompt tokens of each; default 8192")
      ->check(CLI::Range(2, 1 << 20));
  integrity->add_option("--output-len", "Tokens that each generates; default 1000")
      ->check(CLI::Range(10, 1 << 20));
  integrity->add_option("--steps", "Of each setting; default 2000")->check(CLI::Range(1, 1 << 30));
  integrity->add_option("--every", "Steps between changes of the setting; default 50")
      ->check(CLI::Range(1, 1 << 20));
  integrity->add_option("--seconds", "Of a batch, at most; default 600")
      ->check(CLI::Range(1, 1 << 20));
  integrity->add_flag("--each")->description("Each check alone, too");
  integrity->add_flag("--json")->description("One JSON object on standard output");
  integrity->callback([integrity, exit_code] {
    *exit_code = end_bench(*integrity, run_bench_integrity(*integrity), print_text);
  });
}

}  // namespace quire
