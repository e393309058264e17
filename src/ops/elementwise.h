// Element-wise ops of the residual stream and the gated MLP. n_tokens may be 0. Errors: none.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

// out[t, i] = bf16(a[t, i] + b[t, i]), summed in float32. `out` may be `a` or `b`.
struct Add {
  View<Bf16, 2> out;      // [n_tokens, dim]
  View<const Bf16, 2> a;  // [n_tokens, dim]
  View<const Bf16, 2> b;  // [n_tokens, dim]
};

// out[t, i] = bf16(bf16(silu(gate[t, i])) * up[t, i]), silu(x) = x / (1 + exp(-x)) in float32.
// Rounds twice, as the published code does. `out` may be `gate` or `up`.
// Source: Shazeer 2020 (arXiv 2002.05202), SwiGLU; transformers DeepseekV3MLP.
struct SiluMul {
  View<Bf16, 2> out;         // [n_tokens, dim]
  View<const Bf16, 2> gate;  // [n_tokens, dim]
  View<const Bf16, 2> up;    // [n_tokens, dim]
};

void add(Backend& backend, const Add& args);
void silu_mul(Backend& backend, const SiluMul& args);

}  // namespace quire::ops
