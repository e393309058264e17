// Writes the latent and rope key of each token of a layer into its page, as the pool stores them.
//
// BF16: copies bits. FP8 (e4m3_584): the latent values of a token become e4m3, its rope values
// integers of 8 bits, each part over one float32 scale, to nearest even (docs/formats/kv_page.md).
// Token t goes to places[t] (ops/place_tokens.h); one that is not stored there (is_stored) is left
// out. n_tokens may be 0. Errors: none. Idempotent: the same token gives the same bytes, whatever
// is in the page.
#pragma once

#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

struct KvAppend {
  PagedKv kv;                        // its table is not used
  View<const TokenPlace, 1> places;  // [n_tokens]
  int32_t layer;
  View<const Bf16, 2> latent;  // [n_tokens, kv_lora_rank], normed
  View<const Bf16, 2> rope;    // [n_tokens, rope_dim], rotated
  // A precision control of `quire eval` only: low bits that are rounded away, so many (0 to 2) of
  // an e4m3 and twice as many of an integer. Its magnitude is rounded again, to nearest even, to
  // one whose low bits are zero.
  int fp8_bits_dropped = 0;
};

void kv_append(Backend& backend, const KvAppend& args);

}  // namespace quire::ops
