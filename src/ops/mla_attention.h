// Multi-head latent attention over the paged cache, absorbed form, and the two small products
// around it.
//
//   absorb_query:   out[t, h, :] = sum_d q_nope[t, h, d] * w_uk[h, d, :]        (W_UK^T q)
//                   and, where q_rope is given, ops::rope on it
//   mla_attention:  s[j] = scale * (q_latent[t, h] . c_j + q_rope[t, h] . k_j),  j <= position[t]
//                   out[t, h, :] = sum_j softmax(s)[j] * c_j
//   expand_value:   out[t, h, v] = sum_c w_uv[h, v, c] * x[t, h, c]             (W_UV o)
//
// c_j, k_j: latent and rope key of token j, read from the pages as stored, the current step's
// tokens included. Scores, softmax and sums in float32; online softmax with pages in order of
// logical page, tokens in order of position, so that on the CPU the result depends on the sequence
// alone, bitwise. Each op rounds once, to bf16, on the store. In the rows behind tokens.n_lone,
// when one of them has several tokens, a device may round weights to bf16 too, before they meet
// c_j. n_tokens may be 0. Errors: none.
// Source: DeepSeek-V2 (arXiv 2405.04434) eq. 9-15 and its appendix on absorption.
#pragma once

#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

struct AbsorbQuery {
  View<Bf16, 3> out;           // [n_tokens, n_heads, kv_lora_rank]
  View<const Bf16, 3> q_nope;  // [n_tokens, n_heads, nope_dim]; rows may be strided
  View<const Bf16, 3> w_uk;    // [n_heads, nope_dim, kv_lora_rank]
  // The rest of the query, rotated in place as ops::rope does it; empty: not here.
  View<Bf16, 3> q_rope = {};              // [n_tokens, n_heads, rope_dim]; rows may be strided
  View<const int32_t, 1> positions = {};  // [n_tokens], each in [0, table rows)
  View<const float, 2> cos = {};          // [max_positions, rope_dim / 2]
  View<const float, 2> sin = {};          // [max_positions, rope_dim / 2]
};

// When the rows before each token's own, the tokens' positions and the page table were written.
enum class History : uint8_t {
  any,              // perhaps by the op before
  of_earlier_steps  // before the first op of this step: a device may read them ahead of its turn
};

struct MlaAttention {
  View<Bf16, 3> out;             // [n_tokens, n_heads, kv_lora_rank]
  View<const Bf16, 3> q_latent;  // [n_tokens, n_heads, kv_lora_rank]
  View<const Bf16, 3> q_rope;    // [n_tokens, n_heads, rope_dim]; rows may be strided
  PagedKv kv;
  TokenRows tokens;
  int32_t layer;
  float scale;  // > 0: (nope + rope)^-1/2, times YaRN's m^2
  History history = History::any;
};

struct ExpandValue {
  View<Bf16, 3> out;         // [n_tokens, n_heads, v_dim]
  View<const Bf16, 3> x;     // [n_tokens, n_heads, kv_lora_rank]
  View<const Bf16, 3> w_uv;  // [n_heads, v_dim, kv_lora_rank]
};

void absorb_query(Backend& backend, const AbsorbQuery& args);
void mla_attention(Backend& backend, const MlaAttention& args);
void expand_value(Backend& backend, const ExpandValue& args);

}  // namespace quire::ops
