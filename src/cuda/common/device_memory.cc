#include "cuda/common/device_memory.h"

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

std::byte* DeviceMemory::allocate(int64_t bytes) {
  CHECK(bytes > 0);
  CUDA_MUST(cudaSetDevice(device_));
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the next call must not find it
    return nullptr;
  }
  CUDA_MUST(code);
  ++allocations_;
  return static_cast<std::byte*>(data);  // cudaMalloc aligns to 256 bytes
}

void DeviceMemory::release(std::byte* data, int64_t) {
  CUDA_MUST(cudaSetDevice(device_));
  CUDA_MUST(cudaFree(data));
}

}  // namespace quire::cuda
