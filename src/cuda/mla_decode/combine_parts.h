// The combination as a kernel of its own, for a cut that gives a block parts of many tokens.
#pragma once

#include "cuda/mla_decode/partial_sums.cuh"

namespace quire::cuda {

struct CombineParams {
  PartialSums partial;
  DecodeOutput out;
  int n_tokens;
  KvFormat format;
};

// out = the attention over all parts of each token that has more than one; parts in order.
void combine_parts(cudaStream_t stream, const CombineParams& params);

}  // namespace quire::cuda
