// Context: what every launcher of the CUDA backend is given. Owned by the backend.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "cuda/common/staging.h"
#include "cuda/common/workspace.h"

namespace quire::cuda {

class Blas;  // gemm/blas.h

inline constexpr int64_t kArrived = 4096;  // experts, and one for the shared, at most

struct Context {
  cudaStream_t stream;  // the one stream of all ops
  Workspace* workspace;
  Staging* staging;
  Blas* blas;
  int32_t* tickets;    // [2 * n_sms] of the device, zero between ops: who counts puts them back
  int32_t* arrived;    // [kArrived] (moe/arrivals.cuh), zero between ops
  int n_sms;           // multiprocessors
  bool deterministic;  // a row's bits must not depend on its batch (cuda_backend.h)
};

}  // namespace quire::cuda
