// quire bench integrity: what the checks of docs/integrity.md cost a decode step.
//
// One engine for all points, whose checks change every so many steps: off, tags and full in turn
// (and each check alone), so that all see the same machine. Prompts are there at once
// (ready_prompts.h) over pages of random rows; requests come and go one after the other, and so do
// their pages, so that what an end and a beginning cost the steps behind them falls on all settings
// alike. A step's time is that between two returns of Engine::step. Steps beside a prompt or a
// change of the checks are not counted. The table that it prints is that of
// docs/kernels/integrity.md.
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

// So many requests, each with a prompt of so many tokens.
struct LoadPoint {
  int32_t batch = 0;
  int32_t context = 0;
};

struct IntegrityOptions {
  std::vector<LoadPoint> points;
  int32_t output_len = 1000;
  int32_t steps = 2000;                // of each setting
  int32_t every = 50;                  // steps between changes
  int32_t seconds = 600;               // of all points together, at most
  std::vector<int32_t> alone_batches;  // at which each check is measured alone, too
  int32_t alone_steps = 500;           // of each check alone
  bool json = false;
};

// "64x8192". Errors: invalid_argument.
Result<LoadPoint> parse_point(const std::string& text) {
  LoadPoint point;
  int end = 0;
  const int n = std::sscanf(text.c_str(), "%6dx%7d%n", &point.batch, &point.context, &end);
  const bool is_whole = n == 2 && static_cast<size_t>(end) == text.size();
  if (!is_whole || point.batch < 1 || point.batch > 1024 || point.context < 2) {
    return invalid_argument("--points: expected REQUESTSxTOKENS, as 64x8192, found " + text);
  }
  return point;
}

struct Setting {
  std::string name;
  IntegrityConfig checks;
  int32_t steps = 0;
};

std::vector<Setting> settings_of(const IntegrityOptions& options, int32_t batch) {
  std::vector<Setting> settings;
  for (const IntegrityLevel level :
       {IntegrityLevel::off, IntegrityLevel::tags, IntegrityLevel::full}) {
    settings.push_back({std::string(name(level)), integrity_config(level), options.steps});
  }
  if (std::ranges::count(options.alone_batches, batch) == 0) return settings;
  const IntegrityConfig off = integrity_config(IntegrityLevel::off);
  const IntegrityConfig full = integrity_config(IntegrityLevel::full);
  const auto alone = [&](const char* what, auto IntegrityConfig::*check) {
    IntegrityConfig checks = off;
    checks.*check = full.*check;
    settings.push_back({what, checks, std::min(options.alone_steps, options.steps)});
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
  int32_t begun = 0;              // requests, in its turns
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
        source_(engine),
        prompts_(*engine.executor, options.points.front().context),
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

  // Until `deadline_us` of the clock, at most.
  Result<Json> measure(const LoadPoint& point, int64_t deadline_us) {
    prompts_.set_prompt_tokens(point.context);
    begun_ = 0;
    const std::vector<Setting> settings = settings_of(options_, point.batch);
    const EngineStats before = engine_.stats();
    std::vector<Measured> measured(settings.size());
    // Clocks and memory settle first; then there and back, so that what drifts favours none.
    Measured ignored;
    for (int i = 0; i < kWarmUpTurns; ++i) take_turn(point, &ignored);
    for (int32_t done = 0; done < options_.steps && clock_.now_us() < deadline_us;
         done += options_.every) {
      const bool is_back = done / options_.every % 2 == 1;
      for (size_t k = 0; k < settings.size(); ++k) {
        const size_t i = is_back ? settings.size() - 1 - k : k;
        if (done >= settings[i].steps) continue;
        engine_.set_integrity(settings[i].checks);
        take_turn(point, &measured[i]);
        if (counts_.failed > 0) return corruption("a request failed; the log says why");
      }
    }
    engine_.abort_all();
    while (engine_.step()) continue;
    counts_ = {};
    in_flight_ = 0;
    Json out = {{"batch", point.batch},
                {"context", point.context},
                {"settings", report(point.batch, settings, measured)}};
    const EngineStats after = engine_.stats();
    out["page_checks"] = after.integrity_checked - before.integrity_checked;
    out["alarms"] = after.integrity_found.total() - before.integrity_found.total();
    out["evicted_pages"] = after.evicted_pages - before.evicted_pages;
    return out;
  }

  int64_t now_us() const { return clock_.now_us(); }

 private:
  static constexpr int kWarmUpTurns = 2;

  // The first ones are shorter, the next than the one behind it, so that they do not end together.
  void add_request(const LoadPoint& point) {
    const int64_t place = std::min(++begun_, point.batch);
    const int64_t length = div_up(options_.output_len * place, int64_t{point.batch});
    GenerateRequest request{.max_new_tokens = static_cast<int32_t>(length)};
    request.sampling.temperature = 0;
    const auto vocab = static_cast<uint64_t>(source_.config.vocab_size);
    for (int32_t i = 0; i < point.context; ++i) {
      request.prompt.push_back(static_cast<Token>(rng_.next_below(vocab)));
    }
    CHECK(engine_.add(std::move(request), std::make_unique<CountingSink>(counts_)).ok());
    ++in_flight_;
  }

  // One step with `batch` requests in flight: whether it had a row of each and no prompt.
  bool step(const LoadPoint& point) {
    in_flight_ -= std::exchange(counts_.ended, 0);
    while (in_flight_ < point.batch) add_request(point);
    engine_.step();
    return prompts_.rows_of_last() == point.batch;
  }

  void take_turn(const LoadPoint& point, Measured* measured) {
    // The first steps fill the overlap, and bring the mirror up to date.
    constexpr int32_t kUnsettled = 3;
    int32_t settled = -kUnsettled;
    double sum = 0;
    int32_t counted = 0;
    int64_t last = clock_.now_us();
    const int32_t begun_before = begun_;
    while (counted < options_.every && counts_.failed == 0) {
      settled = step(point) ? settled + 1 : -kUnsettled;
      const int64_t now = clock_.now_us();
      if (settled > 0) {
        measured->steps_us.push_back(static_cast<double>(now - last));
        sum += measured->steps_us.back();
        ++counted;
      }
      last = now;
    }
    measured->blocks_us.push_back(sum / std::max(counted, 1));
    measured->begun += begun_ - begun_before;
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

  Json report(int32_t batch, const std::vector<Setting>& settings,
              const std::vector<Measured>& measured) const {
    Json out = Json::array();
    const double off_p95 = describe_distribution(measured[0].steps_us)["p95"].get<double>();
    for (size_t i = 0; i < settings.size(); ++i) {
      if (measured[i].steps_us.empty()) continue;  // no time was left
      const Json steps = describe_distribution(measured[i].steps_us);
      out.push_back(
          {{"name", settings[i].name},
           {"steps", measured[i].steps_us.size()},
           {"requests_begun", measured[i].begun},
           {"nodes", source_.executor->recorded_nodes(step_checks(settings[i].checks), batch)},
           {"step_us", steps},
           {"tokens_per_second", 1e6 * batch / steps["mean"].get<double>()},
           {"throughput_over_off", ratio(measured[0].blocks_us, measured[i].blocks_us)},
           {"p95_over_off", off_p95 / steps["p95"].get<double>()}});
    }
    return out;
  }

  const IntegrityOptions& options_;
  ModelEngine& source_;
  SteadyClock clock_;
  Log log_{LogLevel::warning, LogFormat::text};
  Rng rng_{7};
  CountingSink::Counts counts_;
  int32_t in_flight_ = 0;
  int32_t begun_ = 0;  // requests, of the point
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
  std::printf(
      "| requests x tokens | checks | steps | nodes | p50 us | p95 us | p99 us | tokens/s | "
      "throughput over off | p95 over off |\n|---|---|---|---|---|---|---|---|---|---|\n");
  uint64_t checks = 0;
  uint64_t alarms = 0;
  for (const Json& point : report["points"]) {
    checks += point["page_checks"].get<uint64_t>();
    alarms += point["alarms"].get<uint64_t>();
    for (const Json& setting : point["settings"]) {
      const Json& us = setting["step_us"];
      const Json& over = setting["throughput_over_off"];
      std::printf(
          "| %d x %d | %s | %d | %d | %.0f | %.0f | %.0f | %.1f | %.4f (%.4f to %.4f) | "
          "%.4f |\n",
          point["batch"].get<int>(), point["context"].get<int>(),
          setting["name"].get<std::string>().c_str(), setting["steps"].get<int>(),
          setting["nodes"].get<int>(), us["median"].get<double>(), us["p95"].get<double>(),
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
  const std::vector<std::string> kPoints = {"1x8192", "8x8192", "32x8192", "64x8192"};
  for (const std::string& text : option_value(command, "--points", kPoints)) {
    options.points.push_back(TRY(parse_point(text)));
  }
  options.output_len = option_value(command, "--output-len", options.output_len);
  options.steps = option_value(command, "--steps", options.steps);
  options.every = option_value(command, "--every", options.every);
  options.seconds = option_value(command, "--seconds", options.seconds);
  options.alone_batches = option_value(command, "--alone", options.alone_batches);
  options.alone_steps = option_value(command, "--alone-steps", options.alone_steps);
  const KvFormat kv_format =
      TRY(parse_kv_format(option_value<std::string>(command, "--kv-cache-dtype", "auto")));
  int32_t widest = 0;
  int32_t tokens = 0;
  int64_t kv_tokens = 0;
  for (const LoadPoint& point : options.points) {
    const int32_t of_request = point.context + options.output_len;
    widest = std::max(widest, point.batch);
    tokens = std::max(tokens, of_request);
    // More than the requests need: a request is admitted when there is room to grow beside it, and
    // eviction is to have something to choose from.
    const int64_t room = round_up(of_request, kPageTokens) + 4 * kPageTokens;
    kv_tokens = std::max(kv_tokens, point.batch * room);
  }
  const ModelSource source = TRY(read_model_source(command));
  LoadedModel loaded = TRY(load_model(source));
  ModelEngine engine = TRY(make_model_engine(
      std::move(loaded),
      {.kv_format = kv_format,
       .context_tokens = tokens,
       .running_requests_max = widest,
       .queued_requests_max = widest,
       .kv_tokens = kv_tokens,
       .recorded_checks = {StepChecks::none, StepChecks::pages, StepChecks::pages_and_writes}}));
  TRY_OK(fill_with_random_rows(*engine.loaded.backend, {.data = engine.executor->pool(),
                                                        .n_pages = engine.config.n_pages,
                                                        .layout = &engine.model->kv_layout()}));
  Json report = {{"caveat", engine.loaded.caveat()},
                 {"kv", std::string(name(kv_format))},
                 {"points", Json::array()}};
  IntegrityBench bench(options, engine);
  report["seals"] = bench.time_seals();
  const int64_t end_us = bench.now_us() + int64_t{options.seconds} * 1'000'000;
  for (size_t i = 0; i < options.points.size(); ++i) {
    // What is left is shared evenly; what a point does not need is left to those behind it.
    const int64_t now_us = bench.now_us();
    const auto n_left = static_cast<int64_t>(options.points.size() - i);
    report["points"].push_back(
        TRY(bench.measure(options.points[i], now_us + (end_us - now_us) / n_left)));
  }
  return report;
}

}  // namespace

void add_bench_integrity(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* integrity =
      bench.add_subcommand("integrity", "What the checks of cache pages cost a decode step");
  add_model_source_flags(*integrity);
  integrity->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  integrity
      ->add_option("--points",
                   "REQUESTSxTOKENS in flight, in this order; default 1x8192,8x8192,...,64x8192")
      ->delimiter(',')
      ->expected(1, 64);
  integrity->add_option("--output-len", "Tokens that each generates; default 1000")
      ->check(CLI::Range(10, 1 << 20));
  integrity->add_option("--steps", "Of each setting; default 2000")->check(CLI::Range(1, 1 << 30));
  integrity->add_option("--every", "Steps between changes of the setting; default 50")
      ->check(CLI::Range(1, 1 << 20));
  integrity->add_option("--seconds", "Of all points together, at most; default 600")
      ->check(CLI::Range(1, 1 << 20));
  integrity->add_option("--alone", "Requests of points at which each check is measured alone, too")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(1, 1024));
  integrity->add_option("--alone-steps", "Of each check alone; default 500")
      ->check(CLI::Range(1, 1 << 30));
  integrity->add_flag("--json")->description("One JSON object on standard output");
  integrity->callback([integrity, exit_code] {
    *exit_code = end_bench(*integrity, run_bench_integrity(*integrity), print_text);
  });
}

}  // namespace quire
