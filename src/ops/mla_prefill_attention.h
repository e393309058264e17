// Multi-head latent attention over per-head keys and values, non-absorbed: causal attention of new
// tokens over themselves.
//
//   s[j] = scale * (q_nope[t, h] . k_nope[j, h] + q_rope[t, h] . k_rope[j]),  j <= t of one
//   sequence out[t, h, :] = sum_j softmax(s)[j] * v[j, h, :] lse[t, h] = log sum_j exp(s[j])
//   (natural; for merging with a cached prefix)
//
// One sequence a call. Scores, softmax and sums in float32; rounds once, to bf16. n_tokens may be
// 0. Errors: none. Equal to the absorbed form up to rounding; the CPU engine never mixes the two.
// Source: DeepSeek-V2 (arXiv 2405.04434) eq. 9-15.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct MlaPrefillAttention {
  View<Bf16, 3> out;           // [n_tokens, n_heads, v_dim]
  View<float, 2> lse;          // [n_tokens, n_heads], or empty
  View<const Bf16, 3> q_nope;  // [n_tokens, n_heads, nope_dim]; rows may be strided
  View<const Bf16, 3> q_rope;  // [n_tokens, n_heads, rope_dim]; rows may be strided
  View<const Bf16, 3> k_nope;  // [n_tokens, n_heads, nope_dim]; rows may be strided
  View<const Bf16, 2> k_rope;  // [n_tokens, rope_dim], shared by all heads
  View<const Bf16, 3> v;       // [n_tokens, n_heads, v_dim]; rows may be strided
  float scale;
};

void mla_prefill_attention(Backend& backend, const MlaPrefillAttention& args);

}  // namespace quire::ops
