// HostMemory: the CPU backend's allocator. Aligned, and lazy where it is large.
//
// From kMapFrom bytes on it maps pages of the system: what nobody touches costs no resident memory
// (a KV pool that is half empty), reads as zero, and goes back to the system on release. Below, it
// is an ordinary aligned allocation, contents undefined.
#pragma once

#include "ops/backend.h"
#include "tensor/buffer.h"

namespace quire::cpu {

inline constexpr int64_t kMapFrom = int64_t{1} << 20;  // bytes

class HostMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* data, int64_t bytes) override;
};

// Of this machine, as the system counts it.
MemoryInfo host_memory_info();

}  // namespace quire::cpu
