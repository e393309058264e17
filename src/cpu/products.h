// The two matrix products that everything heavy is made of, in float32, for one worker.
//
// Which rows are computed together never changes a bit: an element of `dot_rows` is one sum over 16
// lanes (lane l adds values l, l + 16, ... with fused multiply-adds; then a fixed tree), and an
// element of `accumulate_rows` is one chain of fused multiply-adds in order of k.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace quire::cpu {

// Rows that products read are padded with zeros to a multiple of this.
inline constexpr int64_t kRowAlignment = 16;  // values

// out[i * out_stride + j] = sum_k a[i][k] * b[j * b_stride + k],  i < m, j < n, k < depth.
struct DotRows {
  const float* const* a;  // [m] rows
  int64_t m;
  const float* b;  // rows; or null, and `b_bf16` instead
  const Bf16* b_bf16;
  int64_t b_stride;
  int64_t n;
  int64_t depth;  // a multiple of kRowAlignment
  float* out;
  int64_t out_stride;
};
void dot_rows(const DotRows& args);

// out[i * out_stride + c] = out * scale[i] + sum_k a[i * a_stride + k] * b[k * b_stride + c],
// i < m, c < n, in order of k < depth.
struct AccumulateRows {
  const float* a;
  int64_t a_stride;
  int64_t m;
  const float* b;  // rows; or null, and `b_bf16` instead
  const Bf16* b_bf16;
  int64_t b_stride;
  int64_t n;  // a multiple of kRowAlignment
  int64_t depth;
  float* out;
  int64_t out_stride;
  const float* scale;  // [m], or null: what is there counts as 0
};
void accumulate_rows(const AccumulateRows& args);

}  // namespace quire::cpu
