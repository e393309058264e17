// quire bench decode: what a decode step takes on the device, by batch, context and cache format.
//
// The forward pass and greedy sampling, recorded once and replayed: no scheduler, no HTTP. Pages
// hold random rows (synthetic_step.h). With two cache formats their steps alternate, so that both
// see the same machine, and their ratio comes with the interval of its rounds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tools/bench_commands.h"
#include "tools/bench_model.h"
#include "tools/option_value.h"
#include "tools/public_figures.h"
#include "tools/read_ceiling.h"
#include "tools/step_table.h"

namespace quire {

namespace {

struct DecodeOptions {
  std::vector<int32_t> batches{1, 8, 32, 64};
  std::vector<int32_t> contexts{1024, 8192, 21504};
  std::vector<KvFormat> kv_formats;
  int32_t rounds = 5;
  bool with_ops = false;
  bool json = false;
};

struct Point {
  int32_t batch = 0;
  int32_t context = 0;
};

// One cache format's side of a point.
struct Side {
  BenchModel* model = nullptr;
  SyntheticStep step;
  SyntheticSampler sampler;
  RecordingId whole;
  RecordingId timed;  // with marks between the ops
  std::vector<OpNote> notes;
  std::vector<int32_t> chosen;    // distinct experts a layer
  std::vector<double> rounds_us;  // a step's time in each round
};

class DecodeBench {
 public:
  DecodeBench(BenchModels& models, const DecodeOptions& options, std::optional<double> ceiling)
      : models_(models), options_(options), ceiling_(ceiling) {}

  Result<Json> run() {
    Json points = Json::array();
    for (const int32_t context : options_.contexts) {
      for (const int32_t batch : options_.batches) {
        TRY_OK(measure({batch, context}, &points));
      }
    }
    return points;
  }

 private:
  Status measure(const Point& point, Json* points) {
    std::vector<std::unique_ptr<Side>> sides;
    for (BenchModel& model : models_.models) {
      const SyntheticShape shape{.n_rows = point.batch, .first_position = point.context - 1};
      const int64_t pages = models_.pool.pages(model.layout());
      if (point.batch * shape.pages_per_row() >= pages) {
        points->push_back({{"batch", point.batch},
                           {"context", point.context},
                           {"kv", std::string(name(model.layout().format))},
                           {"skipped", "the pages do not fit"}});
        continue;
      }
      sides.push_back(TRY(prepare(model, shape)));
    }
    for (int32_t round = 0; round < options_.rounds; ++round) {
      for (const auto& side : sides) {
        TRY_OK(models_.pool.fill(models_.timed, side->model->layout()));
        side->rounds_us.push_back(time_steps(*side));
      }
    }
    for (const auto& side : sides) {
      TRY_OK(models_.pool.fill(models_.timed, side->model->layout()));
      points->push_back(report(point, *side));
    }
    if (sides.size() == 2) points->back()["fp8_over_bf16"] = ratio(*sides[0], *sides[1]);
    return {};
  }

  Result<std::unique_ptr<Side>> prepare(BenchModel& model, const SyntheticShape& shape) {
    TimedBackend& backend = models_.timed;
    TRY_OK(models_.pool.fill(backend, model.layout()));
    auto side = std::make_unique<Side>();
    side->model = &model;
    side->step = TRY(SyntheticStep::make(backend, models_.pool, model.layout(), shape,
                                         models_.loaded.config.shape.vocab_size));
    side->sampler = TRY(SyntheticSampler::make(backend, shape.n_rows));
    const auto step = [&backend, &side = *side] {
      side.sampler.run(backend, side.model->model->forward(side.step.batch()));
    };
    step();
    side->chosen = distinct_experts(models_, *model.model, shape.n_rows);
    StepFacts facts{.kv_tokens = int64_t{shape.n_rows} * (shape.first_position + shape.row_tokens),
                    .chosen = side->chosen};
    backend.set_facts(std::move(facts));
    side->whole = TRY(backend.record(step));
    side->timed = TRY(backend.record([&backend, &side = *side, step] {
      backend.begin_pass(TimedBackend::Noting::ops_and_time);
      step();
      side.notes = backend.end_pass();
    }));
    return side;
  }

  // The mean of enough steps in a row, in microseconds.
  double time_steps(const Side& side) {
    constexpr double kRoundUs = 40'000;
    const auto time = [&](int32_t n) {
      models_.stopwatch->mark(0);
      for (int32_t i = 0; i < n; ++i) models_.timed.replay(side.whole);
      models_.stopwatch->mark(1);
      return models_.stopwatch->us_between(0, 1) / n;
    };
    time(1);
    return time(std::clamp(static_cast<int32_t>(kRoundUs / time(1)), 3, 100));
  }

  Json report(const Point& point, const Side& side) {
    const ModelConfig& config = models_.loaded.config;
    std::vector<double> rounds = side.rounds_us;
    std::ranges::sort(rounds);
    const double step_us = rounds[rounds.size() / 2];
    models_.timed.replay(side.timed);
    models_.timed.replay(side.timed);
    const std::vector<OpRow> rows = add_up(side.notes, models_.timed.read_times());
    double bytes = 0;
    double ops_us = 0;
    for (const OpRow& row : rows) {
      bytes += row.bytes;
      ops_us += row.us;
    }
    const KvFormat kv_format = side.model->layout().format;
    Json out = {{"batch", point.batch},
                {"context", point.context},
                {"kv", std::string(name(kv_format))},
                {"step_us", step_us},
                {"step_us_min", rounds.front()},
                {"step_us_max", rounds.back()},
                {"tokens_per_second", 1e6 * point.batch / step_us},
                {"ops_us", ops_us},
                {"ops_per_layer", static_cast<double>(side.notes.size()) /
                                      static_cast<double>(config.shape.n_layers)},
                {"distinct_experts", describe_routing(config.shape, point.batch, side.chosen)}};
    if (ceiling_) out["floor_us"] = 1e6 * bytes / *ceiling_;
    const auto published = public_decode_figures(config, kv_format, point.batch, point.context);
    if (published) {
      out["public_us"] = published->layer_us * static_cast<double>(config.shape.n_layers);
      out["public_attention_us"] = published->attention_us;
      out["public_experts_us"] = published->experts_us;
    }
    if (options_.with_ops) out["ops"] = describe_ops(rows, ceiling_);
    return out;
  }

  // Throughput in the second format over the first's, at the same requests: each round gives one.
  static Json ratio(const Side& first, const Side& second) {
    std::vector<double> ratios;
    for (size_t i = 0; i < first.rounds_us.size(); ++i) {
      ratios.push_back(first.rounds_us[i] / second.rounds_us[i]);
    }
    std::ranges::sort(ratios);
    return {{"median", ratios[ratios.size() / 2]},
            {"min", ratios.front()},
            {"max", ratios.back()},
            {"rounds", ratios.size()}};
  }

  BenchModels& models_;
  const DecodeOptions& options_;
  const std::optional<double> ceiling_;
};

void print_point(const Json& point) {
  std::printf("%5d %8d %-9s", point["batch"].get<int>(), point["context"].get<int>(),
              point["kv"].get<std::string>().c_str());
  if (point.contains("skipped")) {
    std::printf("  %s\n", point["skipped"].get<std::string>().c_str());
    return;
  }
  const auto ms = [&](const char* key) {
    if (point.contains(key)) {
      std::printf(" %9.3f", 1e-3 * point[key].get<double>());
    } else {
      std::printf(" %9s", "-");
    }
  };
  ms("step_us");
  ms("floor_us");
  ms("public_us");
  ms("ops_us");
  std::printf(" %9.0f", point["tokens_per_second"].get<double>());
  const Json& experts = point["distinct_experts"];
  if (experts.is_object()) {
    std::printf("  %6.1f of %6.1f%s", experts["mean"].get<double>(),
                experts["expected"].get<double>(),
                experts["spread"].get<bool>() ? "" : " (void: not spread)");
  }
  if (point.contains("fp8_over_bf16")) {
    const Json& ratio = point["fp8_over_bf16"];
    std::printf("  FP8/BF16 %.3f (%.3f to %.3f)", ratio["median"].get<double>(),
                ratio["min"].get<double>(), ratio["max"].get<double>());
  }
  std::printf("\n");
}

void print_text(const Json& report) {
  print_bench_head(report);
  std::printf("%5s %8s %-9s %9s %9s %9s %9s %9s  %s\n", "batch", "context", "kv", "step ms",
              "floor ms", "public ms", "ops ms", "tok/s", "distinct experts a layer");
  for (const Json& point : report["points"]) print_point(point);
  for (const Json& point : report["points"]) {
    if (!point.contains("ops")) continue;
    std::printf("\n%d x %d, %s cache: %.1f ops a layer", point["batch"].get<int>(),
                point["context"].get<int>(), point["kv"].get<std::string>().c_str(),
                point["ops_per_layer"].get<double>());
    if (point.contains("public_us")) {
      std::printf("; public: attention %.1f us, experts %.1f us a layer",
                  point["public_attention_us"].get<double>(),
                  point["public_experts_us"].get<double>());
    }
    std::printf("\n");
    print_ops(point["ops"]);
  }
}

Result<Json> run_bench_decode(const CLI::App& command) {
  DecodeOptions options;
  options.batches = option_value(command, "--batch", options.batches);
  options.contexts = option_value(command, "--context", options.contexts);
  options.rounds = option_value(command, "--rounds", options.rounds);
  options.with_ops = command.count("--ops") > 0;
  options.kv_formats = TRY(read_kv_formats(command));
  const int32_t widest = *std::ranges::max_element(options.batches);
  const int32_t longest = *std::ranges::max_element(options.contexts);
  const std::optional<double> ceiling =
      TRY(measure_read_ceiling(option_value<std::string>(command, "--device", "cpu")));
  const std::unique_ptr<BenchModels> models =
      TRY(make_bench_models(command, {.kv_formats = options.kv_formats,
                                      .limits = {.tokens_max = widest, .logits_max = widest},
                                      .rows = widest,
                                      .row_tokens = longest}));
  Json report = describe_bench_head(*models, ceiling);
  report["points"] = TRY(DecodeBench(*models, options, ceiling).run());
  return report;
}

}  // namespace

void add_bench_decode(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* decode =
      bench.add_subcommand("decode", "A decode step on the device, by batch and context");
  add_bench_model_flags(*decode);
  decode->add_option("--batch", "Requests; default 1,8,32,64")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(1, 1024));
  decode->add_option("--context", "Tokens of each; default 1024,8192,21504")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(1, 1 << 20));
  decode->add_option("--rounds", "Of each point, formats in turn; default 5")
      ->check(CLI::Range(1, 1000));
  decode->add_flag("--ops")->description("What each op takes, too");
  decode->add_flag("--json")->description("One JSON object on standard output");
  decode->callback([decode, exit_code] {
    *exit_code = end_bench(*decode, run_bench_decode(*decode), print_text);
  });
}

}  // namespace quire
