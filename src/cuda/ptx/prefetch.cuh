// Prefetch into the second-level cache: a hint, by which no value is read.
//
// So a kernel may give it for memory that an earlier kernel still writes, as long as the address is
// one of the device's memory. Source: PTX ISA 9.0, "prefetch".
#pragma once

namespace quire::cuda {

__device__ inline void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
}

}  // namespace quire::cuda
