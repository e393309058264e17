// Multi-head latent attention over the paged cache, by head (not absorbed): what absorb_query,
// mla_attention and expand_value compute together, for long chunks of a prompt.
//
//   k[j, h] = w_uk[h] c_j,  v[j, h] = w_uv[h] c_j
//   s[j] = scale * (q_nope[t, h] . k[j, h] + q_rope[t, h] . k_j),  j <= position[t]
//   out[t, h, :] = sum_j softmax(s)[j] * v[j, h]
//
// c_j, k_j: latent and rope key of token j, read from the pages as stored, the current step's
// tokens included. Tokens of the rows behind tokens.n_lone are computed and written, no others.
// Rounds to bf16: c_j and k_j with their scales applied (FP8), k, v, and out; weights may be,
// before they meet v. Scores, softmax and sums in float32. Equal to the absorbed form up to
// rounding; which form a step takes is its backend's choice (Backend::attends_by_head), and the CPU
// engine, whose bytes must not depend on it, never takes this one. n_tokens may be 0. Errors: none.
// Source: DeepSeek-V2 (arXiv 2405.04434) eq. 9-15.
#pragma once

#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

struct MlaPrefillAttention {
  View<Bf16, 3> out;           // [n_tokens, n_heads, v_dim]
  View<const Bf16, 3> q_nope;  // [n_tokens, n_heads, nope_dim]; rows may be strided
  View<const Bf16, 3> q_rope;  // [n_tokens, n_heads, rope_dim]; rows may be strided
  View<const Bf16, 3> w_uk;    // [n_heads, nope_dim, kv_lora_rank]
  View<const Bf16, 3> w_uv;    // [n_heads, v_dim, kv_lora_rank]
  PagedKv kv;
  TokenRows tokens;  // says where rows begin, and its key_blocks
  int32_t layer;
  float scale;  // > 0
};

void mla_prefill_attention(Backend& backend, const MlaPrefillAttention& args);

}  // namespace quire::ops
