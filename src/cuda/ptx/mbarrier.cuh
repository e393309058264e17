// Barriers in shared memory that count arrivals (mbarrier), for a producer and its consumers.
//
// A barrier has a phase, even at first; it ends when `count` arrivals were made and all bytes
// announced with expect_bytes have come. Waiting names the parity of the phase that must be over.
#pragma once

#include <cstdint>

#include "cuda/ptx/shared_address.cuh"

namespace quire::cuda {

using Barrier = uint64_t;

// By one thread; all others see it behind barrier_init_done() and a __syncthreads().
__device__ inline void barrier_init(Barrier* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(count));
}
__device__ inline void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives when all copies that this thread started so far (async_copy.cuh) are done.
__device__ inline void barrier_arrive_when_copied(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives, and makes the phase wait for `bytes` of bulk copies.
__device__ inline void barrier_expect_bytes(Barrier* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

__device__ inline void barrier_wait(Barrier* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Ordinary writes to shared memory before it are seen by tensor cores and bulk copies behind it.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// More registers for this warpgroup, or fewer: a branch of its own for each role.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace quire::cuda
