#include "tools/bench_model.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/option_value.h"

namespace quire {

namespace {

// What a pool leaves free for the inputs of steps and their recordings.
constexpr int64_t kSpareBytes = int64_t{2} << 30;

}  // namespace

void add_bench_model_flags(CLI::App& command) {
  add_model_source_flags(command);
  command.add_option("--kv-cache-dtype", "bf16, fp8_e4m3 or both; default bf16");
}

Result<std::vector<KvFormat>> read_kv_formats(const CLI::App& command) {
  const auto text = option_value<std::string>(command, "--kv-cache-dtype", "bf16");
  if (text == "both") return std::vector{KvFormat::bf16, KvFormat::fp8_e4m3_584};
  return std::vector{TRY(parse_kv_format(text))};
}

Result<std::unique_ptr<BenchModels>> make_bench_models(const CLI::App& command,
                                                       const BenchSizes& sizes) {
  const ModelSource source = TRY(read_model_source(command));
  auto out = std::make_unique<BenchModels>(TRY(load_model(source)));
  if (sizes.row_tokens > out->loaded.config.positions_max) {
    return invalid_argument(format("%lld tokens a sequence: the model has %lld positions",
                                   static_cast<long long>(sizes.row_tokens),
                                   static_cast<long long>(out->loaded.config.positions_max)));
  }
  ModelLimits limits = sizes.limits;
  limits.positions_max = sizes.row_tokens;
  out->stopwatch = out->timed.make_stopwatch(2);
  int64_t pool_bytes = 0;
  for (const KvFormat kv_format : sizes.kv_formats) {
    out->models.push_back({TRY(make_model(out->loaded.config, *out->loaded.weights, out->timed,
                                          limits, {.kv_format = kv_format}))});
    const KvPageLayout& layout = out->models.back().layout();
    const int64_t n_pages = sizes.rows * div_up(sizes.row_tokens, kPageTokens) + 2;
    pool_bytes = std::max(pool_bytes, n_pages * layout.page_bytes);
  }
  const int64_t room = out->timed.memory_info().free - kSpareBytes;
  if (room <= 0) return resource_exhausted("no memory is left for a KV pool");
  out->pool = TRY(SyntheticPool::make(out->timed, std::min(pool_bytes, room)));
  return out;
}

std::vector<int32_t> distinct_experts(BenchModels& models, const Model& model, int64_t n_tokens) {
  const View<const int32_t, 3> routed = model.routed_experts(n_tokens);
  std::vector<int32_t> all(static_cast<size_t>(routed.size()));
  models.timed.copy_out(std::as_writable_bytes(std::span(all)),
                        reinterpret_cast<const std::byte*>(routed.data));
  std::vector<int32_t> out;
  const auto of_a_layer = static_cast<size_t>(routed[1] * routed[2]);
  for (size_t begin = 0; begin < all.size(); begin += of_a_layer) {
    const auto layer = std::span(all).subspan(begin, of_a_layer);
    std::ranges::sort(layer);
    out.push_back(static_cast<int32_t>(std::ranges::unique(layer).begin() - layer.begin()));
  }
  return out;
}

Json describe_bench_head(const BenchModels& models, std::optional<double> bytes_per_second) {
  Json out = {{"model", models.loaded.dir},
              {"caveat", models.loaded.caveat()},
              {"backend", std::string(models.timed.name())},
              {"weights", std::string(name(models.loaded.config.weights.scheme))},
              {"pool_bytes", models.pool.bytes()}};
  if (bytes_per_second) out["read_ceiling_tb_per_second"] = 1e-12 * *bytes_per_second;
  return out;
}

void print_bench_head(const Json& report) {
  std::printf("%s on %s, %s weights", report["model"].get<std::string>().c_str(),
              report["backend"].get<std::string>().c_str(),
              report["weights"].get<std::string>().c_str());
  if (report.contains("read_ceiling_tb_per_second")) {
    std::printf(", read ceiling %.3f TB/s", report["read_ceiling_tb_per_second"].get<double>());
  }
  std::printf("\n");
  const auto caveat = report["caveat"].get<std::string>();
  if (!caveat.empty()) std::printf("%s\n", caveat.c_str());
}

ExitCode end_bench(const CLI::App& command, const Result<Json>& report,
                   void (*print_text)(const Json&)) {
  if (!report.ok()) return fail(report.error());
  if (command.count("--json") > 0) {
    std::printf("%s\n", dump_json(report.value()).c_str());
  } else {
    print_text(report.value());
  }
  return ExitCode::ok;
}

}  // namespace quire
