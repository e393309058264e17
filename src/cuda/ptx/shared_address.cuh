// Addresses in shared memory as instructions take them: 32 bits, from its beginning.
#pragma once

#include <cstdint>

namespace quire::cuda {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

}  // namespace quire::cuda
