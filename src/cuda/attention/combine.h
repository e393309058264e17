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
  int64_t n_tokens = 0;
  int64_t n_heads = 0;
  int64_t n_splits = 0;
  int64_t dim = 0;
};

struct SplitResults {
  float* sum = nullptr;      // [n_tokens, n_heads, n_splits, dim]
  float* total = nullptr;    // [n_tokens, n_heads, n_splits]
  float* largest = nullptr;  // [n_tokens, n_heads, n_splits]
  SplitShape shape;

  // Those of the tokens from `token` on.
  SplitResults from(int64_t token) const {
    const int64_t n = token * shape.n_heads * shape.n_splits;
    SplitShape rest = shape;
    rest.n_tokens -= token;
    return {sum + n * shape.dim, total + n, largest + n, rest};
  }

#ifdef __CUDACC__
  __device__ int64_t at(int64_t token, int64_t head, int64_t split) const {
    return (token * shape.n_heads + head) * shape.n_splits + split;
  }
#endif
};

// Begins an op of the workspace.
SplitResults take_splits(const Context& context, const SplitShape& shape);
// The same inside an op that has begun, and the bytes that it takes.
SplitResults take_splits(Workspace& workspace, const SplitShape& shape);
int64_t bytes_of_splits(const SplitShape& shape);

// out[t, h, :] = the attention over all splits, rounded once. Splits are added in order.
void combine(const Context& context, const SplitResults& splits, const View<Bf16, 3>& out);

}  // namespace quire::cuda
