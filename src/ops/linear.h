// out[t, o] = sum_i x[t, i] * weight[o, i]
//
// Accumulates in float32. With `Activation::bf16` the weight is dequantised to float32 exactly and
// x is used as it is; with `fp8_group128` (fp8_block128 weights only) x is first rounded to e4m3
// per 128 inputs of a token (scale = amax / 448, or 1 if amax is 0); both scales are applied in
// float32, to the values before the sum or to partial sums of 128. Rounds once, on the store: to
// bf16 into `out`, or not at all into `out_f32` (exactly one of the two is set). The result of a
// row does not depend on the other rows of the batch (bitwise on the CPU). No aliasing. n_tokens
// may be 0. Errors: none. Source of the FP8 scheme: DeepSeek-V3 technical report
// (arXiv 2412.19437) 3.3.2.
#pragma once

#include "ops/backend.h"
#include "ops/weight_matrix.h"

namespace quire::ops {

struct Linear {
  View<Bf16, 2> out;       // [n_tokens, n_out], or empty
  View<float, 2> out_f32;  // [n_tokens, n_out], or empty: router scores and logits
  View<const Bf16, 2> x;   // [n_tokens, n_in]
  WeightMatrix weight;     // [n_out, n_in]
  Activation activation = Activation::bf16;
};

// Two linear maps of the same input, as if each were done by `linear`: the same bytes, fewer
// passes.
struct LinearPair {
  struct Side {
    View<Bf16, 2> out;    // [n_tokens, n_out]
    WeightMatrix weight;  // [n_out, n_in]
    Activation activation = Activation::bf16;
  };
  Side first;
  Side second;
  View<const Bf16, 2> x;  // [n_tokens, n_in]
};

void linear(Backend& backend, const Linear& args);
void linear_pair(Backend& backend, const LinearPair& args);

}  // namespace quire::ops
