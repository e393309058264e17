// Which (token, slot) pairs each expert works on, and the way back: the sum over a token's slots.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

// Pair p is slot p % top_k of token p / top_k.
struct ExpertRows {
  int32_t* pairs;  // [n_pairs] sorted by expert, then by pair
  int32_t* begin;  // [n_experts + 1] where each expert's pairs begin
};

// Fills `rows` (device memory) from experts [n_tokens, top_k]. Bitwise repeatable.
void sort_by_expert(const Context& context, const View<const int32_t, 2>& experts,
                    int64_t n_experts, const ExpertRows& rows);

struct WeightedSum {
  View<Bf16, 2> out;             // [n_tokens, hidden]
  const Bf16* x;                 // [n_tokens * top_k, hidden], by pair
  const Bf16* shared;            // [n_tokens, hidden], or null
  View<const float, 2> weights;  // [n_tokens, top_k]
};

// out[t] = bf16(sum_k weights[t, k] * x[t * top_k + k] + shared[t]), in order of k.
void sum_slots(const Context& context, const WeightedSum& args);

}  // namespace quire::cuda
