// The products of experts with many tokens each: tiles of tokens, weights widened once a tile.
//
// Inputs are in the order of input_order.h, whole steps of kInputStep; gate and up leave theirs so.
#pragma once

#include "cuda/moe/expert_lists.h"
#include "cuda/moe/expert_side.h"

namespace quire::cuda {

struct PrefillParams {
  ExpertSide routed, shared;
  ExpertLists lists;
  int n_tokens;
  int top_k;
  // down: the blocks of output rows of this launch; row 0 of the first is column 0 of `out`.
  int first_block;
  int n_blocks;     // 0: all that there are
  int unit_blocks;  // that a thread block works on one after another
};

// `out` of the sides: bf16(silu(gate) * up).
void launch_gate_up_tiles(const Context& context, const PrefillParams& params);
// `out` of the sides: bf16(down) of blocks [first_block, first_block + n_blocks).
void launch_down_tiles(const Context& context, const PrefillParams& params);

}  // namespace quire::cuda
