// What the sampling kernel is told of a row, and what it answers. Plain values, sent in one copy.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"

namespace quire::cuda {

inline constexpr int kTopLogprobsMax = 20;

// A slice of one of the arrays that travel with the rows.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
};

struct SampleRowInput {
  float temperature;  // 0: greedy
  float top_p;
  float min_p;
  int32_t top_k;  // 0: all
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  int32_t top_logprobs;
  double uniform;  // the row's draw in [0, 1)
  Slice bias;      // of `biases`
  Slice prompt;    // of `tokens`; both empty when no penalty needs them
  Slice generated;
  Slice mask;  // of `masks`; empty: all tokens are allowed

  // Where the row's slices of the work arrays are, or -1 when it needs none.
  int64_t adjusted_row;  // of `adjusted`: steps 2 and 3 change the logits
  int64_t count_row;     // of `counts`: penalties
  int64_t weight_row;    // of `weights`: not greedy
};

struct TokenBias {
  int32_t token;
  float bias;
};

struct SampleRowOutput {
  int32_t verdict;  // ops::SampleVerdict
  int32_t token;
  float logprob;
  int32_t n_top;
  int32_t top_tokens[kTopLogprobsMax];
  float top_logprobs[kTopLogprobsMax];
};

// All pointers are device memory.
struct SampleParams {
  SampleRowOutput* out;        // [n_rows]
  const SampleRowInput* rows;  // [n_rows]
  const float* logits;         // [n_rows, vocab]
  int64_t logits_stride;       // elements between rows
  const TokenBias* biases;
  const int32_t* tokens;
  const uint64_t* masks;
  float* adjusted;   // [.., vocab] logits after step 3
  uint32_t* counts;  // [.., vocab] bit 31: in the prompt; the rest: how often generated
  float* weights;    // [.., vocab] exp((l - largest) / temperature)
  int32_t vocab;
  int32_t n_rows;
};

void launch_sample(const Context& context, const SampleParams& params);

}  // namespace quire::cuda
