// ExpertLists: which (token, slot) pairs of a prompt each expert works on. Made on the device, for
// every call.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

// Up to `tile_tokens` pairs of an expert, from its pair `first` on.
struct TokenTile {
  int32_t expert;
  int32_t first;
};

// Pair p is slot p % top_k of token p / top_k.
struct ExpertLists {
  int32_t* pairs;    // [n_pairs] sorted by expert, then by pair
  int32_t* begin;    // [n_experts + 1] where each expert's pairs begin
  TokenTile* tiles;  // [n_pairs / tile_tokens + n_experts] by expert; *n_tiles of them
  int tile_tokens;   // of one expert, at least 1, that a block takes at once
  int32_t* n_tiles;
};

// From the workspace, whose op has begun.
struct ListSizes {
  int64_t n_pairs;
  int64_t n_experts;
  int tile_tokens;
};
ExpertLists take_lists(const Context& context, const ListSizes& sizes);
int64_t lists_bytes(const ListSizes& sizes);

// Fills `lists` from experts [n_tokens, top_k]. Bitwise repeatable.
void list_experts(const Context& context, const View<const int32_t, 2>& experts, int64_t n_experts,
                  const ExpertLists& lists);

}  // namespace quire::cuda
