#include "cuda/common/pinned_memory.h"

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

std::byte* PinnedMemory::allocate(int64_t bytes) {
  CHECK(bytes > 0);
  CUDA_MUST(cudaSetDevice(device_));
  void* data = nullptr;
  const cudaError_t code = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the next call must not find it
    return nullptr;
  }
  CUDA_MUST(code);
  return static_cast<std::byte*>(data);
}

void PinnedMemory::release(std::byte* data, int64_t) {
  CUDA_MUST(cudaSetDevice(device_));
  CUDA_MUST(cudaFreeHost(data));
}

}  // namespace quire::cuda
