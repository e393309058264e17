// Thread-block clusters: their barrier, and each other's shared memory.
//
// Before a block touches another's memory that one must have begun: each arrives once at its start
// and waits before the first such access. Source: PTX ISA 9.0, 9.7.13.4 "barrier.cluster", 9.7.9.24
// "mapa".
#pragma once

#include <cstdint>

namespace quire::cuda {

// Every thread of the cluster takes part, in pairs of arrive and wait. What it wrote before it
// arrives can be seen by all after they waited.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same, and what it wrote need not be seen by anybody: what it read was there.
__device__ inline void arrive_at_cluster_after_reads() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline uint32_t cluster_blocks() {
  uint32_t count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

// The address of what lies at `own` of this block's shared memory, in that of block `rank`.
template <class T>
__device__ T* in_block(T* own, uint32_t rank) {
  T* theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(own), "r"(rank));
  return theirs;
}

}  // namespace quire::cuda
