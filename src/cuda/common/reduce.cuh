// Sums and maxima over a warp or a block, in an order that depends on nothing but the shape.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr uint32_t kFullWarp = 0xffffffffU;
inline constexpr int kWarpSize = 32;

__device__ inline int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int warp_of_thread() { return static_cast<int>(threadIdx.x) / kWarpSize; }

// All lanes get the sum.
template <class T>
__device__ inline T warp_sum(T x) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  }
  return x;
}

// All threads of a block of kWarps warps get the sum. `shared` holds kWarps values; two calls in a
// row may share it.
template <int kWarps, class T>
__device__ inline T block_sum(T x, T* shared) {
  x = warp_sum(x);
  __syncthreads();
  if (lane_of_thread() == 0) shared[warp_of_thread()] = x;
  __syncthreads();
  T sum = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) sum += shared[warp];
  return sum;
}

// A value and where it was found; "better" is larger, then the lower index.
struct Best {
  float value;
  int32_t index;
};

__device__ inline Best better(Best a, Best b) {
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.index < b.index ? a : b;
}

__device__ inline Best warp_best(Best x) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(kFullWarp, x.value, step),
                     __shfl_xor_sync(kFullWarp, x.index, step)};
    x = better(x, other);
  }
  return x;
}

template <int kWarps>
__device__ inline Best block_best(Best x, Best* shared) {
  x = warp_best(x);
  __syncthreads();
  if (lane_of_thread() == 0) shared[warp_of_thread()] = x;
  __syncthreads();
  Best best = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) best = better(best, shared[warp]);
  return best;
}

}  // namespace quire::cuda
