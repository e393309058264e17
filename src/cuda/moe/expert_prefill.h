// The products of experts with many tokens each: tiles of 64 tokens, weights widened once a tile.
#pragma once

#include "cuda/moe/expert_lists.h"
#include "cuda/moe/expert_side.h"

namespace quire::cuda {

inline constexpr int64_t kPrefillBlockRows = 256;

struct PrefillParams {
  ExpertSide routed, shared;
  ExpertLists lists;
  int n_tokens;
  int top_k;
  // down: the blocks of output rows of this launch; row 0 of the first is column 0 of `out`.
  int first_block;
  int n_blocks;
};

// `out` of the sides: bf16(silu(gate) * up).
void launch_gate_up_tiles(const Context& context, const PrefillParams& params);
// `out` of the sides: bf16(down) of blocks [first_block, first_block + n_blocks).
void launch_down_tiles(const Context& context, const PrefillParams& params);

}  // namespace quire::cuda
