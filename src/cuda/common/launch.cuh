// launch: starts a kernel that knows of programmatic dependent launch (ptx/grid_dependency.cuh).
//
// Not for a kernel that never calls wait_for_earlier_kernels: that one is started with <<<>>>, and
// begins when everything before it is done.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

struct LaunchShape {
  dim3 grid;
  unsigned threads;          // of a block
  int64_t shared_bytes = 0;  // dynamic
  unsigned cluster = 1;      // blocks, along x, that share their memory; divides grid.x
};

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

template <class... Params>
void launch(cudaStream_t stream, const LaunchShape& shape, void (*kernel)(Params...),
            const std::type_identity_t<Params>&... params) {
  if (shape.shared_bytes > 0) allow_shared_memory(kernel, shape.shared_bytes);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  CUDA_MUST(cudaLaunchKernelEx(&config, kernel, params...));
}

}  // namespace quire::cuda
