#include "cpu/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/bytes.h"

namespace quire::cpu {

std::byte* HostMemory::allocate(int64_t bytes) {
  CHECK(bytes > 0);
  const auto size = static_cast<size_t>(round_up(bytes, kBufferAlignment));
  if (bytes < kMapFrom) {
    return static_cast<std::byte*>(std::aligned_alloc(size_t{kBufferAlignment}, size));
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

void HostMemory::release(std::byte* data, int64_t bytes) {
  if (bytes < kMapFrom) {
    std::free(data);
  } else {
    CHECK(munmap(data, static_cast<size_t>(round_up(bytes, kBufferAlignment))) == 0);
  }
}

MemoryInfo host_memory_info() {
  const auto bytes_of = [](int name) { return int64_t{sysconf(name)} * sysconf(_SC_PAGESIZE); };
  return {.free = bytes_of(_SC_AVPHYS_PAGES), .total = bytes_of(_SC_PHYS_PAGES)};
}

}  // namespace quire::cpu
