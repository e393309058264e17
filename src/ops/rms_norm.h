// out[t, i] = bf16(x[t, i] / sqrt(mean_i(x[t, i]^2) + eps)) * weight[i]
//
// Sums in float32; rounds twice as the published code does: the normalised value to bf16, then the
// product with the weight to bf16, both to nearest even. `out` may be `x`; any other overlap is a
// programmer error. n_tokens may be 0. Errors: none (shapes come from our own model code).
// Source: Zhang & Sennrich 2019, eq. 4; huggingface/transformers modeling_deepseek_v3.py,
// DeepseekV3RMSNorm.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct RmsNorm {
  View<Bf16, 2> out;           // [n_tokens, dim]
  View<const Bf16, 2> x;       // [n_tokens, dim]
  View<const Bf16, 1> weight;  // [dim]
  float eps;                   // > 0; config.json `rms_norm_eps`
};

// The sum of the residual stream and its norm in one pass, the bytes of ops::add and then rms_norm:
//   h[t, i] = bf16(h[t, i] + delta[t, i]),  out = rms_norm(h, weight)
// Nothing overlaps.
struct AddRmsNorm {
  View<Bf16, 2> out;           // [n_tokens, dim]
  View<Bf16, 2> h;             // [n_tokens, dim], in and out
  View<const Bf16, 2> delta;   // [n_tokens, dim]
  View<const Bf16, 1> weight;  // [dim]
  float eps;                   // > 0
};

void rms_norm(Backend& backend, const RmsNorm& args);
void add_rms_norm(Backend& backend, const AddRmsNorm& args);

}  // namespace quire::ops
