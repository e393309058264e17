// The products of a decode step's experts: few tokens an expert, weights read once.
//
// Blocks make the lists of tokens by expert for themselves (block_lists.cuh). Those of down do so
// ahead of their turn: what was chosen must be there before the kernel ahead lets them begin.
#pragma once

#include "cuda/common/context.h"
#include "cuda/moe/expert_side.h"

namespace quire::cuda {

struct DecodeParams {
  ExpertSide routed, shared;
  const int32_t* experts;  // [n_tokens, top_k]
  int64_t experts_stride;  // elements between tokens
  int n_tokens;
  int top_k;
  int unit;  // gate and up: tiles of a routed unit, 1 or 4
  struct GateUpTiles {
    int routed, shared;  // of an expert
  };
  GateUpTiles gate_up;
  // Down: groups of 64 outputs that each warp of the first blocks has more than others.
  int lead;
  // [n_experts + 1] tiles of gate and up that are there, by active expert, last of the shared one:
  // zero before gate and up and again after the sum (arrivals.cuh). Null: down waits for the whole
  // kernel.
  int32_t* arrived;
};

// Of gate and up and of down.
struct DecodeGrid {
  int blocks_per_sm;
  int warps;  // of a block
};
inline constexpr DecodeGrid kDecodeGrid{.blocks_per_sm = 2, .warps = 8};

void launch_gate_up(const Context& context, const DecodeParams& params);
void launch_down(const Context& context, const DecodeParams& params);

}  // namespace quire::cuda
