// The bulk copy engine: one contiguous range of device memory into shared memory.
//
// Completion is counted in bytes on a barrier (mbarrier.cuh), which is told beforehand how many to
// expect. Addresses and sizes are multiples of 16. Source: PTX ISA 9.0, "cp.async.bulk".
#pragma once

#include <cstddef>

#include "cuda/ptx/cache_policy.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace quire::cuda {

__device__ inline void bulk_copy(std::byte* to_shared, const std::byte* from, uint32_t bytes,
                                 Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to_shared)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// The same of what is read once in a step.
__device__ inline void bulk_copy_once(std::byte* to_shared, const std::byte* from, uint32_t bytes,
                                      Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to_shared)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier)),
      "l"(kEvictFirst)
      : "memory");
}

}  // namespace quire::cuda
