// HostMemory: the CPU backend's allocator. Aligned, and lazy where it is large.
//
// From kMapFrom bytes on it maps pages of the system: what nobody touches costs no resident memory
// (a KV pool that is half empty), reads as zero, and goes back to the system on release. Below, it
// is an ordinary aligned allocation, contents undefined.
#pragma once

#include <string>

#include "ops/backend.h"
#include "tensor/buffer.h"

namespace quire::cpu {

inline constexpr int64_t kMapFrom = int64_t{1} << 20;  // bytes

class HostMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* data, int64_t bytes) override;
};

// Of this machine. Free is what this process may still have: what the system counts as available
// (pages of files that it would drop too), or less, where a limit of the process (RLIMIT_DATA,
// RLIMIT_AS) or of a control group leaves less.
MemoryInfo host_memory_info();

// What the limits of a control group and of those around it leave. `root` is where the groups (v2)
// are mounted, `path` is the group's in it, from "/" on.
int64_t control_group_room(const std::string& root, const std::string& path);

}  // namespace quire::cpu
