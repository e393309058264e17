// Rotary embedding of interleaved pairs, in place:
//   (x[2i], x[2i+1]) -> (x[2i] c_i - x[2i+1] s_i, x[2i+1] c_i + x[2i] s_i),
//   c_i = cos(position * frequency[i]), s_i = sin(position * frequency[i]).
//
// Angles and products in float32 from a table that the model fills in float64 (model/rope_table.h,
// where YaRN is applied); rounds once, to bf16. n_tokens may be 0. Errors: none.
// Source: Su et al. 2021 (arXiv 2104.09864) eq. 34, pairs interleaved as in deepseek-ai/DeepSeek-V3
// inference/model.py, apply_rotary_emb.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct Rope {
  View<Bf16, 3> x;  // [n_tokens, n_heads, rope_dim], in and out; rows may be strided
  View<const int32_t, 1> positions;  // [n_tokens], each in [0, table rows)
  View<const float, 2> cos;          // [max_positions, rope_dim / 2]
  View<const float, 2> sin;          // [max_positions, rope_dim / 2]
};

void rope(Backend& backend, const Rope& args);

}  // namespace quire::ops
