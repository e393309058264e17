// Mixture of experts: choosing experts, and running the chosen ones.
#pragma once

#include "ops/backend.h"
#include "ops/expert_bank.h"

namespace quire::ops {

// Sigmoid routing without an auxiliary loss:
//   p = sigmoid(scores[t]); chosen = the top_k of p + bias, ties to the lower expert;
//   weight[k] = scaling * p[chosen k] / (sum_k p[chosen k] + 1e-20)   (not divided when !normalise)
// All in float32. `experts` is written in descending order of p + bias. n_tokens may be 0. A row
// with NaN scores gives in-range experts and NaN weights. Errors: none.
// Source: DeepSeek-V3 (arXiv 2412.19437) eq. 12-16; transformers DeepseekV3TopkRouter with
// n_group = topk_group = 1.
enum class RouteWeights : uint8_t { normalised, as_they_are };

struct MoeRoute {
  View<int32_t, 2> experts;     // [n_tokens, top_k]
  View<float, 2> weights;       // [n_tokens, top_k]
  View<const float, 2> scores;  // [n_tokens, n_experts] logits
  View<const float, 1> bias;    // [n_experts] e_score_correction_bias
  float scaling;                // routed_scaling_factor
  RouteWeights mode = RouteWeights::normalised;
};

// out[t] = bf16(sum_k weights[t, k] * E_{experts[t, k]}(x[t]) + S(x[t]))
// E(x) = down . bf16(silu(gate . x) * (up . x)), S the shared expert, or 0 where the bank has none.
//
// Sums of products are in float32, and so is everything else up to the two roundings that the
// formula shows; a backend may round E to bf16 too, before it is weighted, and with more than 128
// tokens the product of an INT4 value and its scale. The sum over k is in
// slot order, then the shared expert. With `Activation::fp8_group128` x and the rounded inner
// values are rounded to e4m3 as ops::linear rounds its input; that applies to experts in
// fp8_block128, and others take them as they are. No aliasing. n_tokens may be 0. Errors: none.
struct MoeExperts {
  View<Bf16, 2> out;               // [n_tokens, hidden]
  View<const Bf16, 2> x;           // [n_tokens, hidden]
  View<const int32_t, 2> experts;  // [n_tokens, top_k], each in [0, n_experts)
  View<const float, 2> weights;    // [n_tokens, top_k]
  const ExpertBank* bank;          // packed by the same backend
  Activation activation = Activation::bf16;
};

void moe_route(Backend& backend, const MoeRoute& args);
void moe_experts(Backend& backend, const MoeExperts& args);

}  // namespace quire::ops
