// The products of a decode step's experts where there are many of them, INT4: weights pass through
// rings in shared memory, so that more of them are on their way than registers hold.
//
// In place of expert_decode.h's, with the same parameters; sums of gate and up are taken in another
// order. The shared expert may have any format.
#pragma once

#include "cuda/moe/expert_decode.h"

namespace quire::cuda {

inline constexpr DecodeGrid kRingGrid{.blocks_per_sm = 3, .warps = 4};

// In this order, with nothing between them but what rounds the second's input.
void launch_ring_gate_up(const Context& context, const DecodeParams& params);
void launch_ring_down(const Context& context, const DecodeParams& params);

}  // namespace quire::cuda
