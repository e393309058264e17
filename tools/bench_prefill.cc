// quire bench prefill: what a chunk of a prompt takes on the device, op by op.
//
// One row of many tokens behind a cached prefix, or several such rows. The forward pass alone, one
// call after the other: a chunk's work dwarfs its launches, so nothing is recorded.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tools/bench_commands.h"
#include "tools/bench_model.h"
#include "tools/option_value.h"
#include "tools/read_ceiling.h"
#include "tools/step_table.h"

namespace quire {

namespace {

struct PrefillOptions {
  int32_t tokens = 8192;  // of a row
  int32_t rows = 1;
  std::vector<int32_t> cached{0};  // tokens of each row that are in the cache already
  int32_t rounds = 5;
};

// Products of the whole chunk: two operations a weight and token, as every token meets it.
double weight_flops(const ModelShape& shape, int64_t n_tokens) {
  const int64_t q = shape.q_lora_rank > 0
                        ? shape.q_lora_rank * (shape.hidden_size + shape.n_heads * shape.qk_dim())
                        : shape.hidden_size * shape.n_heads * shape.qk_dim();
  const int64_t attention = q + shape.hidden_size * (shape.kv_lora_rank + shape.rope_dim) +
                            shape.n_heads * (shape.nope_dim + shape.v_dim) * shape.kv_lora_rank +
                            shape.hidden_size * shape.n_heads * shape.v_dim;
  const int64_t dense = 3 * shape.hidden_size * shape.dense_inner;
  const int64_t experts =
      3 * shape.hidden_size * (shape.top_k * shape.expert_inner + shape.shared_inner()) +
      shape.hidden_size * shape.n_experts;
  const int64_t n_moe = shape.n_layers - shape.n_dense_layers;
  return 2.0 * static_cast<double>(n_tokens) *
         static_cast<double>(shape.n_layers * attention + shape.n_dense_layers * dense +
                             n_moe * experts);
}

class PrefillBench {
 public:
  PrefillBench(BenchModels& models, const PrefillOptions& options, std::optional<double> ceiling)
      : models_(models), options_(options), ceiling_(ceiling) {}

  Result<Json> run() {
    Json points = Json::array();
    for (const int32_t cached : options_.cached) {
      for (BenchModel& model : models_.models) points.push_back(TRY(measure(model, cached)));
    }
    return points;
  }

 private:
  Result<Json> measure(BenchModel& model, int32_t cached) {
    TimedBackend& backend = models_.timed;
    const ModelShape& shape = models_.loaded.config.shape;
    TRY_OK(models_.pool.fill(backend, model.layout()));
    const SyntheticShape rows{
        .n_rows = options_.rows, .row_tokens = options_.tokens, .first_position = cached};
    const auto step =
        TRY(SyntheticStep::make(backend, models_.pool, model.layout(), rows, shape.vocab_size));
    const auto forward = [&] { model.model->forward(step.batch()); };
    forward();
    const int64_t n_tokens = int64_t{rows.n_rows} * rows.row_tokens;
    const std::vector<int32_t> chosen = distinct_experts(models_, *model.model, n_tokens);
    StepFacts facts{.kv_tokens = int64_t{rows.n_rows} * (cached + rows.row_tokens),
                    .chosen = chosen};
    backend.set_facts(std::move(facts));

    std::vector<double> steps_us;
    for (int32_t round = 0; round < options_.rounds; ++round) {
      models_.stopwatch->mark(0);
      forward();
      models_.stopwatch->mark(1);
      steps_us.push_back(models_.stopwatch->us_between(0, 1));
    }
    std::ranges::sort(steps_us);
    backend.begin_pass(TimedBackend::Noting::ops_and_time);
    forward();
    const std::vector<OpNote> notes = backend.end_pass();
    const std::vector<OpRow> ops = add_up(notes, backend.read_times());

    const double step_us = steps_us[steps_us.size() / 2];
    return Json{{"kv", std::string(name(model.layout().format))},
                {"rows", rows.n_rows},
                {"tokens", rows.row_tokens},
                {"cached", cached},
                {"step_us", step_us},
                {"step_us_min", steps_us.front()},
                {"step_us_max", steps_us.back()},
                {"tokens_per_second", 1e6 * static_cast<double>(n_tokens) / step_us},
                {"layer_ms", 1e-3 * step_us / static_cast<double>(shape.n_layers)},
                {"weights_tflop", 1e-12 * weight_flops(shape, n_tokens)},
                {"distinct_experts", describe_routing(shape, n_tokens, chosen)},
                {"ops", describe_ops(ops, ceiling_)}};
  }

  BenchModels& models_;
  const PrefillOptions& options_;
  const std::optional<double> ceiling_;
};

void print_text(const Json& report) {
  print_bench_head(report);
  for (const Json& point : report["points"]) {
    std::printf(
        "%d x %d tokens behind %d cached, %s cache: %.2f ms (%.2f to %.2f), %.3f ms a "
        "layer, %.0f tok/s\n",
        point["rows"].get<int>(), point["tokens"].get<int>(), point["cached"].get<int>(),
        point["kv"].get<std::string>().c_str(), 1e-3 * point["step_us"].get<double>(),
        1e-3 * point["step_us_min"].get<double>(), 1e-3 * point["step_us_max"].get<double>(),
        point["layer_ms"].get<double>(), point["tokens_per_second"].get<double>());
    print_ops(point["ops"]);
  }
}

Result<Json> run_bench_prefill(const CLI::App& command) {
  PrefillOptions options;
  options.tokens = option_value(command, "--tokens", options.tokens);
  options.rows = option_value(command, "--rows", options.rows);
  options.cached = option_value(command, "--cached", options.cached);
  options.rounds = option_value(command, "--rounds", options.rounds);
  const int32_t cached_max = *std::ranges::max_element(options.cached);
  const std::optional<double> ceiling =
      TRY(measure_read_ceiling(option_value<std::string>(command, "--device", "cpu")));
  const std::vector<KvFormat> kv_formats = TRY(read_kv_formats(command));
  const std::unique_ptr<BenchModels> models = TRY(make_bench_models(
      command,
      {.kv_formats = kv_formats,
       .limits = {.tokens_max = int64_t{options.rows} * options.tokens, .logits_max = options.rows},
       .rows = options.rows,
       .row_tokens = options.tokens + cached_max}));
  Json report = describe_bench_head(*models, ceiling);
  report["points"] = TRY(PrefillBench(*models, options, ceiling).run());
  return report;
}

}  // namespace

void add_bench_prefill(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* prefill =
      bench.add_subcommand("prefill", "A chunk of a prompt on the device, op by op");
  add_bench_model_flags(*prefill);
  prefill->add_option("--tokens", "New tokens of a row; default 8192")
      ->check(CLI::Range(1, 1 << 20));
  prefill->add_option("--rows", "Prompts in the step; default 1")->check(CLI::Range(1, 1024));
  prefill->add_option("--cached", "Tokens that each row has in the cache already; default 0")
      ->delimiter(',')
      ->expected(1, 64)
      ->check(CLI::Range(0, 1 << 20));
  prefill->add_option("--rounds", "Of each point; default 5")->check(CLI::Range(1, 1000));
  prefill->add_flag("--json")->description("One JSON object on standard output");
  prefill->callback([prefill, exit_code] {
    *exit_code = end_bench(*prefill, run_bench_prefill(*prefill), print_text);
  });
}

}  // namespace quire
