// The model of a bench of steps: loaded once, run with one or both cache formats over one pool.
#pragma once

#include <optional>
#include <vector>

#include "base/json_fwd.h"
#include "tools/commands.h"
#include "tools/model_source.h"
#include "tools/synthetic_step.h"
#include "tools/timed_backend.h"

namespace quire {

// The model with one cache format.
struct BenchModel {
  std::unique_ptr<Model> model;
  const KvPageLayout& layout() const { return model->kv_layout(); }
};

// Members are destroyed in reverse order. Never moved once made: models hold on to `timed`.
struct BenchModels {
  explicit BenchModels(LoadedModel from)
      : loaded(std::move(from)), timed(*loaded.backend, kOpsMax) {}

  static constexpr int32_t kOpsMax = 4096;  // of a step: 61 layers of at most 60

  LoadedModel loaded;
  TimedBackend timed;
  std::unique_ptr<Stopwatch> stopwatch;  // of two marks
  std::vector<BenchModel> models;
  SyntheticPool pool;
};

struct BenchSizes {
  std::vector<KvFormat> kv_formats;
  ModelLimits limits;
  int64_t rows = 0;        // of the largest step,
  int64_t row_tokens = 0;  // of this many tokens each: what the pool should hold
};

void add_bench_model_flags(CLI::App& command);
// --kv-cache-dtype: one format, or `both`, BF16 first.
Result<std::vector<KvFormat>> read_kv_formats(const CLI::App& command);
// The pool is as large as the sizes ask for, or as the device has room. Errors: as load_model;
// resource_exhausted when not even a small pool fits.
Result<std::unique_ptr<BenchModels>> make_bench_models(const CLI::App& command,
                                                       const BenchSizes& sizes);

// Distinct experts that the model's last batch chose, layer by layer. Waits.
std::vector<int32_t> distinct_experts(BenchModels& models, const Model& model, int64_t n_tokens);

// {"model", "caveat", "backend", "weights", "read_ceiling_tb_per_second", "pool_bytes"}.
Json describe_bench_head(const BenchModels& models, std::optional<double> bytes_per_second);
void print_bench_head(const Json& report);

// Prints the report as JSON or as text, or the error, and says how the command ended.
ExitCode end_bench(const CLI::App& command, const Result<Json>& report,
                   void (*print_text)(const Json&));

}  // namespace quire
