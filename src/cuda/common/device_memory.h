// DeviceMemory: the CUDA backend's allocator, plain cudaMalloc, with a count of what it did.
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

  // Allocations since the start: a steady step makes none.
  int64_t allocations() const { return allocations_; }

 private:
  int device_;
  int64_t allocations_ = 0;
};

}  // namespace quire::cuda
