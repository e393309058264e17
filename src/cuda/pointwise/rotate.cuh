// Rotation: the arguments of ops::rope as kernels take them, and the turn itself, for the kernels
// that rotate beside other work.
#pragma once

#include "cuda/common/numbers.cuh"
#include "tensor/view.h"

namespace quire::cuda {

struct Rotation {
  bf16* x = nullptr;         // [n_tokens, n_heads, 2 * n_pairs], in and out; null: nothing to do
  const int32_t* positions;  // [n_tokens]
  const float* cos;          // [max_positions, n_pairs]
  const float* sin;          // [max_positions, n_pairs]
  int64_t token_stride;      // elements
  int64_t head_stride;       // elements
  int64_t table_stride;      // elements between positions
  int64_t max_positions;
  int n_heads;
  int n_pairs;
};

inline Rotation rotation_of(const View<Bf16, 3>& x, const View<const int32_t, 1>& positions,
                            const View<const float, 2>& cos, const View<const float, 2>& sin) {
  CHECK(cos.stride[0] == sin.stride[0]);
  CHECK(x[1] * x[2] < int64_t{1} << 31);
  return {.x = device_type(x.data),
          .positions = positions.data,
          .cos = cos.data,
          .sin = sin.data,
          .token_stride = x.stride[0],
          .head_stride = x.stride[1],
          .table_stride = cos.stride[0],
          .max_positions = cos[0],
          .n_heads = static_cast<int>(x[1]),
          .n_pairs = static_cast<int>(cos[1])};
}

// The row of the tables for a token; a position outside them takes the nearest.
__device__ inline int64_t table_row(const Rotation& r, int64_t token) {
  const int64_t position = min(max(int64_t{r.positions[token]}, int64_t{0}), r.max_positions - 1);
  return position * r.table_stride;
}

// Products and sums round on their own, as on the host.
__device__ inline void rotate_pair(float* a, float* b, float cos, float sin) {
  const float x = *a;
  const float y = *b;
  *a = __fsub_rn(__fmul_rn(x, cos), __fmul_rn(y, sin));
  *b = __fadd_rn(__fmul_rn(y, cos), __fmul_rn(x, sin));
}

__device__ inline void rotate_in_place(bf16* x, float cos, float sin) {
  float a = __bfloat162float(x[0]);
  float b = __bfloat162float(x[1]);
  rotate_pair(&a, &b, cos, sin);
  x[0] = __float2bfloat16_rn(a);
  x[1] = __float2bfloat16_rn(b);
}

// One head of some tokens, by all threads of the blocks along x.
__device__ inline void rotate(const Rotation& r, int64_t first_token, int n_tokens, int head) {
  const auto step = static_cast<int>(gridDim.x * blockDim.x);
  for (auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n_tokens * r.n_pairs;
       i += step) {
    const int64_t token = first_token + i / r.n_pairs;
    const int pair = i % r.n_pairs;
    const int64_t row = table_row(r, token);
    rotate_in_place(r.x + token * r.token_stride + head * r.head_stride + 2 * pair,
                    r.cos[row + pair], r.sin[row + pair]);
  }
}

}  // namespace quire::cuda
