// Latents and rope keys of one round of a step's chunks (chunk_keys.cuh), out of their pages.
#pragma once

#include "cuda/common/context.h"
#include "ops/paged_kv.h"

namespace quire::cuda {

struct ChunkLatents {
  View<Bf16, 2> latent;  // [128 n_blocks, kv_lora_rank]; contiguous
  View<Bf16, 2> rope;    // [128 n_blocks, rope_dim]; contiguous
  PagedKv kv;            // its table has the chunks' rows
  TokenRows tokens;
  int32_t layer;
  int64_t first_block;  // of the round
};

// Both parts of a stored row are whole 16-byte pieces. Rows past a chunk's end become zero.
void chunk_latents(const Context& context, const ChunkLatents& args);

}  // namespace quire::cuda
