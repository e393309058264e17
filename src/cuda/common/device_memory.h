// DeviceMemory: the CUDA backend's allocator, plain cudaMalloc.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"

namespace quire::cuda {

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(int device) : device_(device) {}

  // Null when the device has no memory left; contents undefined.
  std::byte* allocate(int64_t bytes) override;
  // Waits for the device: nothing that runs may still use the memory.
  void release(std::byte* data, int64_t bytes) override;
  uint64_t allocations() const override { return allocations_; }

 private:
  int device_;
  uint64_t allocations_ = 0;
};

}  // namespace quire::cuda
