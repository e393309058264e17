// The results of attention over parts of a sequence, and their sum.
//
// A split holds sum_j exp(s_j - largest) v_j, sum_j exp(s_j - largest) and largest; an empty one
// zeros and -infinity. Not normalised: the combination divides once.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

struct SplitShape {
  int64_t n_tokens, n_heads, n_splits, dim;
};

struct SplitResults {
  float* sum;      // [n_tokens, n_heads, n_splits, dim]
  float* total;    // [n_tokens, n_heads, n_splits]
  float* largest;  // [n_tokens, n_heads, n_splits]
  SplitShape shape;

#ifdef __CUDACC__
  __device__ int64_t at(int64_t token, int64_t head, int64_t split) const {
    return (token * shape.n_heads + head) * shape.n_splits + split;
  }
#endif
};

// Begins an op of the workspace.
SplitResults take_splits(const Context& context, const SplitShape& shape);

// out[t, h, :] = the attention over all splits, rounded once. Splits are added in order.
void combine(const Context& context, const SplitResults& splits, const View<Bf16, 3>& out);

}  // namespace quire::cuda
