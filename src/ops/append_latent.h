// What follows the low-rank projections of a token, in one pass: both norms, the rotation of the
// shared key, and the cache write. The same bytes as these ops one after another:
//
//   q_a = rms_norm(q_a, q_a_norm)                        where q_a is given
//   latent = rms_norm(kv_a[:, 0 .. kv_lora_rank), kv_a_norm)
//   k_rope = rope(kv_a[:, kv_lora_rank ..])
//   kv_append(latent, k_rope)
//
// Rounds where they round. kv_a is left as it was; nothing overlaps. n_tokens may be 0. Errors:
// none. Sources: ops/rms_norm.h, ops/rope.h, ops/kv_append.h.
#pragma once

#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

struct AppendLatent {
  PagedKv kv;  // its table is not used
  // These are as they were before the step's embed began: a backend may read them before the op's
  // turn.
  View<const TokenPlace, 1> places;  // [n_tokens]
  View<const int32_t, 1> positions;  // [n_tokens] for the angles of the key
  int32_t layer;
  View<const Bf16, 2> kv_a;           // [n_tokens, kv_lora_rank + rope_dim], as projected
  View<const Bf16, 1> kv_a_norm;      // [kv_lora_rank]
  View<Bf16, 2> q_a = {};             // [n_tokens, q_lora_rank], in and out; or empty
  View<const Bf16, 1> q_a_norm = {};  // [q_lora_rank]; or empty
  float eps;                          // > 0
  View<const float, 2> cos;           // [max_positions, rope_dim / 2]
  View<const float, 2> sin;           // [max_positions, rope_dim / 2]
  int fp8_bits_dropped = 0;           // as in ops/kv_append.h
};

void append_latent(Backend& backend, const AppendLatent& args);

}  // namespace quire::ops
