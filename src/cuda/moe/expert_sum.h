// The weighted sum over a token's experts.
#pragma once

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

// How the values of a row lie in memory: in order, or each sixteen as a lane has them of a tile's
// product, i and i + 8 side by side.
enum class SumOrder : uint8_t { plain, tiles };

struct ExpertSum {
  View<Bf16, 2> out;             // [n_tokens, width]
  const Bf16* routed;            // [n_tokens * top_k, width], by pair
  const Bf16* shared;            // [n_tokens, width], or null
  int64_t stride;                // elements between rows of both; a multiple of 16
  View<const float, 2> weights;  // [n_tokens, top_k]
  SumOrder order;
  int32_t* arrived = nullptr;  // [n_arrived], made zero (arrivals.cuh); or null
  int n_arrived = 0;
};

// out[t] = bf16(sum_k weights[t, k] * routed[t * top_k + k] + shared[t]), in order of k.
void sum_experts(const Context& context, const ExpertSum& args);

}  // namespace quire::cuda
