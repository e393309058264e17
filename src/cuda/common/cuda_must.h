// CUDA_MUST: a device call that fails ends the process, saying which and where.
//
// A rank is the unit of failure: after a CUDA error nothing on the device can be trusted, so there
// is no path that goes on. Running out of memory at start is not such an error: DeviceMemory
// reports it as null.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace quire::cuda {

[[noreturn, gnu::cold, gnu::noinline]] inline void must_failed(const char* file, int line,
                                                               const char* call, const char* why) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why);
  std::abort();
}

inline const char* reason(cudaError_t code) {
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}
inline const char* reason(cublasStatus_t code) {
  return code == CUBLAS_STATUS_SUCCESS ? nullptr : cublasLtGetStatusString(code);
}

}  // namespace quire::cuda

#define CUDA_MUST(...)                                                          \
  do {                                                                          \
    if (const char* why_ = ::quire::cuda::reason(__VA_ARGS__); why_ != nullptr) \
      ::quire::cuda::must_failed(__FILE__, __LINE__, #__VA_ARGS__, why_);       \
  } while (false)
