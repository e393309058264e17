// launch: starts a kernel that knows of programmatic dependent launch (ptx/grid_dependency.cuh).
//
// Not for a kernel that never calls wait_for_earlier_kernels: that one is started with <<<>>>, and
// begins when everything before it is done.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

struct LaunchShape {
  dim3 grid;
  unsigned threads;          // of a block
  int64_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;      // blocks, along x, that share their memory; divides grid.x
  // At most so many on a multiprocessor; 0: as many as fit. A launch with fewer blocks than there
  // are multiprocessors otherwise piles them up on the first that are free.
  int blocks_of_sm = 0;
};

// Shared memory of a block with which no more than so many fit on a multiprocessor. Source: CUDA
// C++ Programming Guide, "Compute Capability 9.0": 228 KB, of which each block costs 1 KB more.
constexpr int64_t shared_bytes_of_at_most(int blocks) {
  constexpr int64_t kOfSm = int64_t{228} << 10;
  constexpr int64_t kReserved = int64_t{1} << 10;
  constexpr int64_t kUnit = 128;
  return kOfSm / (blocks + 1) / kUnit * kUnit + kUnit - kReserved;
}

// Lets a kernel be started with so much dynamic shared memory. The bound is a property of the
// kernel and only grows: a recorded launch that asked for more must stay one that may be
// (common/recordings.cc sets attributes of its nodes).
template <class... Params>
void allow_shared_memory(void (*kernel)(Params...), int64_t bytes) {
  cudaFuncAttributes attributes{};
  CUDA_MUST(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.maxDynamicSharedSizeBytes >= bytes) return;
  CUDA_MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(bytes)));
}

// The kernel's multiprocessors are to have as much shared memory as there is, whatever it needs
// itself: how that and the first-level cache share their memory changes when a multiprocessor is
// empty, and until then blocks of other kernels that need more of it wait.
template <class... Params>
void prefer_shared_memory(void (*kernel)(Params...)) {
  CUDA_MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared));
}

template <class... Params>
void launch(cudaStream_t stream, const LaunchShape& shape, void (*kernel)(Params...),
            const std::type_identity_t<Params>&... params) {
  int64_t shared_bytes = shape.shared_bytes;
  if (shape.blocks_of_sm > 0) {
    shared_bytes = std::max(shared_bytes, shared_bytes_of_at_most(shape.blocks_of_sm));
  }
  if (shared_bytes > 0) allow_shared_memory(kernel, shared_bytes);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  CUDA_MUST(cudaLaunchKernelEx(&config, kernel, params...));
}

}  // namespace quire::cuda
