// PinnedMemory: host memory that the device copies from and to without a stop on the way.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"

namespace quire::cuda {

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(int device) : device_(device) {}

  // Null when the host gives none; contents undefined.
  std::byte* allocate(int64_t bytes) override;
  // Waits for the device: no copy may still use the memory.
  void release(std::byte* data, int64_t bytes) override;

 private:
  int device_;
};

}  // namespace quire::cuda
