// Mixture of experts: choosing experts, and running the chosen ones.
#pragma once

#include "ops/backend.h"
#include "ops/expert_bank.h"

namespace quire::ops {

enum class RouteWeights : uint8_t { normalised, as_they_are };

// Sigmoid routing without an auxiliary loss:
//   p = sigmoid(scores[t]); experts[t] = the top_k of p + bias, ties to the lower expert;
//   weights[t, k] = scaling * p[experts[t, k]] / (sum_k p[experts[t, k]] + 1e-20)
//     (not divided where RouteWeights::as_they_are)
// All in float32. `experts` is written in descending order of p + bias. A row with NaN scores gives
// in-range experts and NaN weights. Then what they make of the token:
//   out[t] = bf16(sum_k weights[t, k] * E_{experts[t, k]}(x[t]) + S(x[t]))
// E(x) = down . bf16(silu(gate . x) * (up . x)), S the shared expert, or 0 where the bank has none.
//
// Sums of products are in float32, and so is everything else up to the two roundings that the
// formula shows; a backend may round E to bf16 too, before it is weighted, and with more than 128
// tokens the product of an INT4 value and its scale. The sum over k is in
// slot order, then the shared expert. With `Activation::fp8_group128` x and the rounded inner
// values are rounded to e4m3 as ops::linear rounds its input; that applies to experts in
// fp8_block128, and others take them as they are. No aliasing. n_tokens may be 0. Errors: none.
// Source: DeepSeek-V3 (arXiv 2412.19437) eq. 12-16; transformers DeepseekV3TopkRouter with
// n_group = topk_group = 1.
struct MoeExperts {
  View<Bf16, 2> out;            // [n_tokens, hidden]
  View<int32_t, 2> experts;     // [n_tokens, top_k] written: what was chosen
  View<float, 2> weights;       // [n_tokens, top_k] written: what it weighs
  View<const Bf16, 2> x;        // [n_tokens, hidden]
  View<const float, 2> scores;  // [n_tokens, n_experts] logits
  View<const float, 1> bias;    // [n_experts] e_score_correction_bias
  float scaling;                // routed_scaling_factor
  RouteWeights mode = RouteWeights::normalised;
  const ExpertBank* bank;  // packed by the same backend
  Activation activation = Activation::bf16;

  // The same of some of the tokens.
  MoeExperts rows(int64_t begin, int64_t n) const;
};

void moe_experts(Backend& backend, const MoeExperts& args);

}  // namespace quire::ops
