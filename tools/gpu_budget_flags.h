// The flags that say what a GPU has room for, of the commands that estimate it.
#pragma once

#include "tools/commands.h"
#include "tools/rank_estimate.h"

namespace quire {

// --gpu-memory, --mem-fraction-static, --kv-cache-dtype.
void add_gpu_budget_flags(CLI::App& command);
// Errors: invalid_argument, a cache format that does not exist.
Result<GpuBudget> read_gpu_budget(const CLI::App& command);

}  // namespace quire
