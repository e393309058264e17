// The norm of a row by a block, for the kernels that norm beside other work.
//
// Values stay in registers between the two passes. The order of the sum depends on the length of
// the row alone.
#pragma once

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"

namespace quire::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / kWarpSize;
inline constexpr int kNormVectors = 4;  // of 8 values, of a thread
inline constexpr int64_t kNormDimMax = int64_t{kNormThreads} * kNormVectors * 8;

// A thread's part of a row, zeros past its end: vector v is values [8 * (v * kNormThreads +
// thread), + 8).
struct NormRow {
  uint4 vector[kNormVectors];

  template <class Load>
  __device__ void load(int64_t dim, const Load& load_vector) {
#pragma unroll
    for (int v = 0; v < kNormVectors; ++v) {
      const int64_t i = int64_t{v} * kNormThreads + threadIdx.x;
      vector[v] = 8 * i < dim ? load_vector(i) : uint4{0, 0, 0, 0};
    }
  }
  template <class Store>
  __device__ void store(int64_t dim, const Store& store_vector) const {
#pragma unroll
    for (int v = 0; v < kNormVectors; ++v) {
      const int64_t i = int64_t{v} * kNormThreads + threadIdx.x;
      if (8 * i < dim) store_vector(i, vector[v]);
    }
  }
};

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
  return __fdiv_rn(1.0F, __fsqrt_rn(mean + eps));
}

// x = rms_norm(x, weight), by all threads of the block. `shared` holds kNormWarps values.
__device__ inline void norm(NormRow& x, const NormRow& weight, int64_t dim, float eps,
                            float* shared) {
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kNormVectors; ++v) {
    for (const uint32_t pair : {x.vector[v].x, x.vector[v].y, x.vector[v].z, x.vector[v].w}) {
      const float2 value = floats_of(pair);
      sum += value.x * value.x;
      sum += value.y * value.y;
    }
  }
  const float factor = norm_factor(block_sum<kNormWarps>(sum, shared), dim, eps);
#pragma unroll
  for (int v = 0; v < kNormVectors; ++v) {
    x.vector[v] = combine(x.vector[v], weight.vector[v], [factor](float value, float w) {
      return __bfloat162float(__float2bfloat16_rn(value * factor)) * w;
    });
  }
}

// A norm from memory to memory; `to` may be `x`.
struct NormArgs {
  const bf16* x;       // [dim]
  const bf16* weight;  // [dim]
  int64_t dim;
  float eps;
  bool is_aligned;  // x, weight and `to` are at 16 bytes, and the row fits NormRow
};

// For rows of any length and alignment. The sum has the order of `norm`.
__device__ inline void norm_values(const NormArgs& p, bf16* to, float* shared) {
  float sum = 0;
  for (int64_t first = 8 * int64_t{threadIdx.x}; first < p.dim; first += 8 * kNormThreads) {
    for (int64_t i = first; i < min(first + 8, p.dim); ++i) {
      const float value = __bfloat162float(p.x[i]);
      sum += value * value;
    }
  }
  const float factor = norm_factor(block_sum<kNormWarps>(sum, shared), p.dim, p.eps);
  for (int64_t i = threadIdx.x; i < p.dim; i += kNormThreads) {
    const bf16 normalised = __float2bfloat16_rn(__bfloat162float(p.x[i]) * factor);
    to[i] = __float2bfloat16_rn(__bfloat162float(normalised) * __bfloat162float(p.weight[i]));
  }
}

__device__ inline void norm_row(const NormArgs& p, bf16* to, float* shared) {
  if (!p.is_aligned) return norm_values(p, to, shared);
  NormRow row;
  NormRow weight;
  row.load(p.dim, [&](int64_t i) { return reinterpret_cast<const uint4*>(p.x)[i]; });
  weight.load(p.dim, [&](int64_t i) { return reinterpret_cast<const uint4*>(p.weight)[i]; });
  norm(row, weight, p.dim, p.eps, shared);
  row.store(p.dim, [&](int64_t i, uint4 v) { reinterpret_cast<uint4*>(to)[i] = v; });
}

inline bool fits_norm_row(int64_t dim) { return dim % 8 == 0 && dim <= kNormDimMax; }

}  // namespace quire::cuda
