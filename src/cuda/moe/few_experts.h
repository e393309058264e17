// A mixture of experts for a handful of tokens, in two launches: gate and up, then down and the
// sum.
//
// A step with few requests waits for latency more than for bytes. So there is no launch for lists
// (each block makes its own) and none for the sum (a block of down has all experts of its outputs),
// and weights are on their way before what they are multiplied with is there. Not for inputs that
// are rounded to e4m3, and not bit by bit what expert_decode.h gives.
#pragma once

#include "cuda/common/context.h"
#include "cuda/moe/expert_bank.h"
#include "cuda/moe/expert_side.h"
#include "cuda/tune/few_experts_plan.h"

namespace quire::cuda {

// What was chosen for the tokens.
struct FewChoice {
  const int32_t* experts;  // [n_tokens, top_k]
  const float* weights;    // [n_tokens, top_k]
  int64_t experts_stride;  // elements between tokens, of each
  int64_t weights_stride;
  int n_tokens;
  int top_k;
};

struct FewExperts {
  PackedExperts routed, shared;  // data null: there is no shared expert
  FewChoice choice;
  ExpertInput x;         // without scales
  Bf16* gated;           // [n_pairs, gated_stride] silu(gate) * up of the routed experts
  int64_t gated_stride;  // elements, a multiple of 8
  float* shared_sums;    // [shared_parts, n_tokens, tiles, 16] rows of tiles (packed_layout.h)
  int shared_parts;
  Bf16* out;           // [n_tokens, width]
  int64_t out_stride;  // elements between tokens
  int width;
};

// In this order and with nothing between them: the second reads the choice before it waits for the
// first, which let it begin when the choice was there.
void launch_few_gate_up(const Context& context, const FewExpertsPlan& plan,
                        const FewExperts& experts);
void launch_few_down(const Context& context, const FewExpertsPlan& plan, const FewExperts& experts);

}  // namespace quire::cuda
