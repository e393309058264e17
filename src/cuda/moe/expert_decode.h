// The products of a decode step's experts: few tokens an expert, weights read once.
#pragma once

#include "cuda/moe/expert_lists.h"
#include "cuda/moe/expert_side.h"

namespace quire::cuda {

struct DecodeParams {
  ExpertSide routed, shared;
  ExpertLists lists;
  int n_tokens;
  int top_k;
  int unit;  // gate and up: tiles of a routed unit, 1 or 4
};

void launch_gate_up(const Context& context, DecodeParams params, int64_t n_pairs);
void launch_down(const Context& context, const DecodeParams& params);

}  // namespace quire::cuda
