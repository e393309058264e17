// The bulk copy engine reading an array through a tensor map (common/tensor_map.h): a box of it
// into shared memory, swizzled as the map says.
//
// Completion is counted in bytes on a barrier (mbarrier.cuh), those of the whole box: what lies
// outside the array is written as zeros. Source: PTX ISA 9.0, "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstddef>

#include "cuda/ptx/cache_policy.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace quire::cuda {

// `map` is a parameter of the kernel (__grid_constant__), `at` the box's first element, innermost
// axis first. By one thread.
__device__ inline void tensor_copy(std::byte* to_shared, const CUtensorMap& map, int3 at,
                                   Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to_shared)),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(shared_address(barrier))
      : "memory");
}

// The same with a hint for the second-level cache (cache_policy.cuh).
__device__ inline void tensor_copy(std::byte* to_shared, const CUtensorMap& map, int3 at,
                                   Barrier* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to_shared)),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Fetches the map itself ahead of the first copy.
__device__ inline void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace quire::cuda
