// Attention of a step's chunks over keys and values by head (the form that is not absorbed), for
// one round of expanded keys (chunk_keys.cuh).
//
// What a tile has summed goes from round to round in float32, and is divided and rounded in the
// round that holds its last key.
#pragma once

#include "cuda/attention/combine.h"
#include "cuda/common/context.h"
#include "ops/mla_prefill_attention.h"

namespace quire::cuda {

inline constexpr int64_t kHeadNopeMax = 128;
inline constexpr int64_t kHeadRopeMax = 64;
inline constexpr int64_t kHeadValueMax = 128;

// Between rounds; null when there is one round. Rounds have no splits.
struct HeadSums {
  float* sum = nullptr;      // [n_tokens, n_heads, kHeadValueMax]
  float* total = nullptr;    // [n_tokens, n_heads]
  float* largest = nullptr;  // [n_tokens, n_heads]
};

struct HeadAttention {
  View<Bf16, 3> out;           // [n_tokens, n_heads, v_dim]; tokens of chunks are written
  View<const Bf16, 3> q_nope;  // [n_tokens, n_heads, nope_dim]
  View<const Bf16, 3> q_rope;  // [n_tokens, n_heads, rope_dim]
  View<const Bf16, 3> k_nope;  // [128 n_blocks, n_heads, nope_dim]
  View<const Bf16, 2> k_rope;  // [128 n_blocks, rope_dim]
  View<const Bf16, 3> v;       // [128 n_blocks, n_heads, v_dim]
  TokenRows tokens;
  int64_t first_block;  // of the round
  HeadSums sums;
  SplitResults splits;  // of head_attention_splits; used when those are more than one
  float scale;
};

// In how many parts, each for a block of its own, the keys of a tile are best cut when one round
// has them all.
int64_t head_attention_splits(const Context& context, const ops::MlaPrefillAttention& args);

void head_attention(const Context& context, const HeadAttention& args);

}  // namespace quire::cuda
