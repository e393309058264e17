// The norm of a row by a block, for the kernels that norm beside other work.
//
// A thread holds eight values of the row between the two passes. The order of the sum depends on
// the length of the row alone, for rows that fit: more threads than the row needs add zeros behind
// it.
#pragma once

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"

namespace quire::cuda {

inline constexpr int kNormThreadsMax = 1024;
inline constexpr int kNormWarpsMax = kNormThreadsMax / kWarpSize;
static_assert(kNormWarpsMax <= kWarpSize);  // sum_of_row

// Rows that `n_threads` threads hold.
inline bool fits_norm(int64_t dim, int64_t n_threads) {
  return dim % 8 == 0 && dim <= 8 * n_threads;
}

__device__ inline float2 floats_of(uint32_t pair) {
  return __bfloat1622float2(*reinterpret_cast<bf16x2*>(&pair));
}

// op(x, y) on each of eight values, rounded to bfloat16.
template <class Op>
__device__ inline uint4 combine(uint4 x, uint4 y, const Op& op) {
  const uint32_t a[4] = {x.x, x.y, x.z, x.w};
  const uint32_t b[4] = {y.x, y.y, y.z, y.w};
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 p = floats_of(a[i]);
    const float2 q = floats_of(b[i]);
    out[i] = bits_of(__floats2bfloat162_rn(op(p.x, q.x), op(p.y, q.y)));
  }
  return {out[0], out[1], out[2], out[3]};
}

__device__ inline float norm_factor(float sum, int64_t dim, float eps) {
  const float mean = __fdiv_rn(sum, static_cast<float>(dim));
  return __frcp_rn(__fsqrt_rn(mean + eps));
}

// All threads of the block get the sum. `shared` holds kNormWarpsMax values, used by this alone.
__device__ inline float sum_of_row(float x, float* shared) {
  x = warp_sum(x);
  if (lane_of_thread() == 0) shared[warp_of_thread()] = x;
  __syncthreads();
  const int n_warps = static_cast<int>(blockDim.x) / kWarpSize;
  return warp_sum(lane_of_thread() < n_warps ? shared[lane_of_thread()] : 0.0F);
}

// Of a thread's eight values, in order.
__device__ inline float sum_of_squares(uint4 x) {
  float sum = 0;
  for (const uint32_t pair : {x.x, x.y, x.z, x.w}) {
    const float2 value = floats_of(pair);
    sum += value.x * value.x;
    sum += value.y * value.y;
  }
  return sum;
}

// A normalised pair: rounded before its weights, and after.
__device__ inline uint32_t scale_pair(uint32_t pair, uint32_t weight, float factor) {
  const float2 value = floats_of(pair);
  const float2 w = floats_of(weight);
  const float2 normed =
      floats_of(bits_of(__floats2bfloat162_rn(value.x * factor, value.y * factor)));
  return bits_of(__floats2bfloat162_rn(normed.x * w.x, normed.y * w.y));
}

// x = rms_norm(x, weight), by all threads of the block: thread i has values [8 * i, + 8) of both,
// zeros past the end of the row.
__device__ inline void norm(uint4& x, uint4 weight, int64_t dim, float eps, float* shared) {
  const float factor = norm_factor(sum_of_row(sum_of_squares(x), shared), dim, eps);
  x = {scale_pair(x.x, weight.x, factor), scale_pair(x.y, weight.y, factor),
       scale_pair(x.z, weight.z, factor), scale_pair(x.w, weight.w, factor)};
}

// The vector of eight values that the thread has of a row, which fits.
__device__ inline uint4 load_vector(const bf16* row, int64_t dim) {
  if (8 * int64_t{threadIdx.x} >= dim) return {0, 0, 0, 0};
  return reinterpret_cast<const uint4*>(row)[threadIdx.x];
}
__device__ inline void store_vector(bf16* row, int64_t dim, uint4 vector) {
  if (8 * int64_t{threadIdx.x} < dim) reinterpret_cast<uint4*>(row)[threadIdx.x] = vector;
}

// A norm from memory to memory, for rows of any length and alignment; `to` may be `x`. The sum has
// the order of `norm`.
struct NormArgs {
  const bf16* x;       // [dim]
  const bf16* weight;  // [dim]
  int64_t dim;
  float eps;
};

__device__ inline void norm_values(const NormArgs& p, bf16* to, float* shared) {
  float sum = 0;
  for (int64_t first = 8 * int64_t{threadIdx.x}; first < p.dim; first += 8 * int64_t{blockDim.x}) {
    for (int64_t i = first; i < min(first + 8, p.dim); ++i) {
      const float value = __bfloat162float(p.x[i]);
      sum += value * value;
    }
  }
  const float factor = norm_factor(sum_of_row(sum, shared), p.dim, p.eps);
  for (int64_t i = threadIdx.x; i < p.dim; i += blockDim.x) {
    const bf16 normalised = __float2bfloat16_rn(__bfloat162float(p.x[i]) * factor);
    to[i] = __float2bfloat16_rn(__bfloat162float(normalised) * __bfloat162float(p.weight[i]));
  }
}

}  // namespace quire::cuda
