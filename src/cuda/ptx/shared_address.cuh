// Addresses in shared memory as instructions take them: 32 bits, from its beginning.
#pragma once

#include <cstdint>

namespace quire::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Loads from such an address: for loops whose every instruction counts. Ordered among themselves
// and with waits on barriers.
__device__ inline uint32_t load_shared_16(uint32_t at) {
  uint16_t x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at));
  return x;
}
__device__ inline uint2 load_shared_64(uint32_t at) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at));
  return x;
}
__device__ inline uint4 load_shared_128(uint32_t at) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at));
  return x;
}

}  // namespace quire::cuda
