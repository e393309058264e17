// ExpertLists: which (token, slot) pairs each expert works on. Made on the device, for every call.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

// Tokens of one expert that a block takes at once when there are many.
inline constexpr int kTileTokens = 64;

// Up to kTileTokens pairs of an expert, from its pair `first` on.
struct TokenTile {
  int32_t expert;
  int32_t first;
};

// Pair p is slot p % top_k of token p / top_k.
struct ExpertLists {
  int32_t* pairs;    // [n_pairs] sorted by expert, then by pair
  int32_t* begin;    // [n_experts + 1] where each expert's pairs begin
  int32_t* active;   // [n_experts] experts that have a pair, ascending; counts->n_active of them
  TokenTile* tiles;  // [n_pairs / kTileTokens + n_experts] by expert; counts->n_tiles of them
  struct Counts {
    int32_t n_active;
    int32_t n_tiles;
  };
  Counts* counts;  // [1]
};

// From the workspace, whose op has begun.
ExpertLists take_lists(const Context& context, int64_t n_pairs, int64_t n_experts);
int64_t lists_bytes(int64_t n_pairs, int64_t n_experts);

// Fills `lists` from experts [n_tokens, top_k]. Bitwise repeatable.
void list_experts(const Context& context, const View<const int32_t, 2>& experts, int64_t n_experts,
                  const ExpertLists& lists);

}  // namespace quire::cuda
