#include "tools/gpu_budget_flags.h"

#include <string>

#include "tools/option_value.h"

namespace quire {

namespace {

constexpr double kGpuGigabytesMax = 1e6;

}  // namespace

void add_gpu_budget_flags(CLI::App& command) {
  command.add_option("--gpu-memory", "Memory of a GPU in GB (10^9 bytes); default 150, an H200")
      ->check(CLI::Range(1.0, kGpuGigabytesMax));
  command.add_option("--mem-fraction-static", "Share of it that a server takes; default 0.95")
      ->check(CLI::Range(0.01, 1.0));
  command.add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3; default auto");
}

Result<GpuBudget> read_gpu_budget(const CLI::App& command) {
  GpuBudget gpu;
  gpu.bytes = static_cast<int64_t>(option_value(command, "--gpu-memory", kGpuGigabytes) * 1e9);
  gpu.fraction = option_value(command, "--mem-fraction-static", gpu.fraction);
  gpu.kv_format =
      TRY(parse_kv_format(option_value<std::string>(command, "--kv-cache-dtype", "auto")));
  return gpu;
}

}  // namespace quire
