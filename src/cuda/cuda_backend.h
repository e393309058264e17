// The Backend on one NVIDIA GPU of compute capability 9.0 (sm_90a).
//
// Any CUDA error after the start ends the process. Results are bitwise repeatable for the same
// calls; unlike on the CPU, a row may differ in its last bits with the batch around it, unless
// `Deterministic::yes` is asked for (docs/numerics.md).
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "ops/backend.h"

namespace quire {

// With `yes` a row's bits depend on that row alone, not on its batch or its place there. Slower.
enum class Deterministic : uint8_t { no, yes };

struct CudaOptions {
  int device = 0;
  Deterministic deterministic = Deterministic::no;
};

// `unavailable` when there is no such device or driver, `unsupported` when it is not sm_90,
// `resource_exhausted` when it has no room for the workspace.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

}  // namespace quire
