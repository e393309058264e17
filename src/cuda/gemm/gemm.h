// Products with weights in any format, one matrix or one a group of rows (experts).
//
// Tensor cores multiply what is stored (e4m3 and 4-bit integers are exact in bfloat16); scales are
// applied in float32 to partial sums of one scale group. The order of a sum depends on the shape
// and on the tile that `launch_gemm` chooses, never on timing.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "ops/linear.h"

namespace quire::cuda {

// A WeightMatrix as kernels take it: the format and the shape are the launch's.
struct WeightRef {
  const void* values;    // [n_out, n_in], packed as the format says
  const void* scales;    // float32 or Bf16; null for bf16
  int64_t value_stride;  // bytes between rows
  int64_t scale_stride;  // elements between rows of scales
};

WeightRef ref_of(const WeightMatrix& weight);
// True when rows can be read in whole vectors.
bool is_aligned(const WeightMatrix& weight);

// One product of a launch: gate and up are two with the same input.
struct GemmSide {
  WeightRef weight;        // when `table` is null
  const WeightRef* table;  // [n_groups], device memory
  Bf16* out;               // or null
  float* out_f32;          // or null
  int64_t out_stride;      // elements between rows
};

struct GemmParams {
  GemmSide sides[2];
  int n_sides;
  WeightFormat format;
  int group;  // int4_group: inputs that share a scale
  int64_t n_out;
  int64_t n_in;
  const Bf16* x;           // rows of n_in values
  int64_t x_stride;        // elements between rows
  const float* x_scale;    // [x rows, ceil(n_in / 128)], or null: 1
  int64_t x_scale_stride;  // elements between rows
  bool is_aligned;         // weights and x
  // Group g multiplies rows [group_begin[g], group_begin[g + 1]); null: one group of all n_rows.
  const int32_t* group_begin;
  int64_t n_groups;
  int64_t n_rows;
  // Row r reads x row x_index[r] / x_divisor and writes out row out_index[r]; null: r.
  const int32_t* x_index;
  int x_divisor;
  const int32_t* out_index;
};

void launch_gemm(const Context& context, const GemmParams& params);

// e4m3 by token and 128 values, kept as bfloat16 (exact), with its scales: what
// Activation::fp8_group128 makes of x.
struct Quantised {
  Bf16* values;          // [n_rows, n_in]
  float* scales;         // [n_rows, ceil(n_in / 128)]
  int64_t scale_stride;  // ceil(n_in / 128)
};

int64_t quantised_bytes(int64_t n_rows, int64_t n_in);  // of workspace
// Takes its memory from the workspace, whose op has begun.
Quantised quantise(const Context& context, const View<const Bf16, 2>& x);

}  // namespace quire::cuda
