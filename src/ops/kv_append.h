// Writes the latent and rope key of each token of a layer into its page, as the pool stores them.
//
// BF16: copies bits. FP8 (e4m3_584): the 512 latent values and the rope values of a token each get
// one float32 scale = amax / 448 (1 if amax is 0), then value / scale rounded to nearest even,
// saturated (docs/formats/kv_page.md). Token t goes to page table[row[t], position[t] / 64], slot
// position[t] % 64; that page is valid (>= 0): the engine allocated it. Where stores are guarded
// (ops/paged_kv.h), a token whose page its row may not write is left out. n_tokens may be 0.
// Errors: none. Idempotent: the same token gives the same bytes, whatever is in the page.
#pragma once

#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

struct KvAppend {
  PagedKv kv;
  TokenRows tokens;
  int32_t layer;
  View<const Bf16, 2> latent;  // [n_tokens, kv_lora_rank], normed
  View<const Bf16, 2> rope;    // [n_tokens, rope_dim], rotated
  // A precision control of `quire eval` only: mantissa bits of e4m3 that are rounded away (0 to 2).
  // The e4m3 value is rounded again, to nearest even, to one whose low bits are zero.
  int fp8_bits_dropped = 0;
};

void kv_append(Backend& backend, const KvAppend& args);

}  // namespace quire::ops
