// The weighted sum over a token's experts.
#pragma once

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

template <class T>  // float or Bf16
struct ExpertSum {
  View<Bf16, 2> out;             // [n_tokens, width]
  const T* routed;               // [n_tokens * top_k, width], by pair
  const T* shared;               // [n_tokens, width], or null
  int64_t stride;                // elements between rows of both; a multiple of 4
  View<const float, 2> weights;  // [n_tokens, top_k]
};

// out[t] = bf16(sum_k weights[t, k] * routed[t * top_k + k] + shared[t]), in order of k.
void sum_experts(const Context& context, const ExpertSum<float>& args);
void sum_experts(const Context& context, const ExpertSum<Bf16>& args);

}  // namespace quire::cuda
