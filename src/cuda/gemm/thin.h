// Products of few tokens: weights stream through once, in any format. Up to two matrices with the
// same input in one launch.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/common/context.h"
#include "cuda/gemm/weight_ref.h"
#include "tensor/dtype.h"

namespace quire::cuda {

struct ThinSide {
  WeightRef weight;
  Bf16* out;           // or null
  float* out_f32;      // or null
  int64_t out_stride;  // elements between tokens
  int64_t n_out;
};

struct ThinProduct {
  ThinSide sides[2];
  int n_sides = 1;
  WeightFormat format = WeightFormat::bf16;
  int group = 0;  // int4_group: inputs that share a scale
  int64_t n_in = 0;
  int64_t n_tokens = 0;
  const Bf16* x = nullptr;         // [n_tokens, n_in]
  int64_t x_stride = 0;            // elements between tokens
  const float* x_scale = nullptr;  // [n_tokens, ceil(n_in / 128)], or null: 1; fp8_block128 only
  int64_t x_scale_stride = 0;      // elements between tokens
};

// True when weights and x can be copied in vectors of 16 bytes.
bool is_thin(const ThinProduct& product);
// Of at most thin_tokens_max() tokens (cuda/tune/thin_plan.h).
void multiply_thin(const Context& context, const ThinProduct& product);

}  // namespace quire::cuda
