// cp.async: copies from global to shared memory that a thread starts and later waits for.
//
// What a thread copied is visible to that thread after the wait, and to others after a barrier
// behind it. Source: PTX ISA 9.0, 9.7.9.25.3 "cp.async".
#pragma once

#include <cstdint>

#include "cuda/ptx/cache_policy.cuh"
#include "cuda/ptx/shared_address.cuh"

namespace quire::cuda {

// 16 bytes, both ends aligned to 16; the last 16 - `bytes` are filled with zeros. Not through the
// first-level cache.
__device__ inline void copy_async_16(uint32_t shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// The same of what is read once in a step, as weights are.
__device__ inline void copy_async_16_once(uint32_t shared, const void* global, int bytes = 16) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared),
      "l"(global), "r"(bytes), "l"(kEvictFirst)
      : "memory");
}

// 4 bytes, both ends aligned to 4, or zeros in their place.
__device__ inline void copy_async_4(uint32_t shared, const void* global, int bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes)
               : "memory");
}

// Arrives at a barrier (mbarrier.cuh) when all copies that this thread started are done: one of the
// arrivals that the barrier counts. Tensor cores may read what was copied behind a
// fence_async_proxy of those who waited.
__device__ inline void arrive_when_copied(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Closes the group of the copies that this thread started since the last call.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Returns when at most kPending groups of this thread are under way.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace quire::cuda
