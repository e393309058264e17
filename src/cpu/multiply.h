// Rows of a weight times tokens: what `linear`, the experts and the absorbed products share.
#pragma once

#include "cpu/products.h"
#include "cpu/workers.h"
#include "ops/weight_matrix.h"

namespace quire::cpu {

// Length of a row of activations in scratch memory: n values, then zeros.
constexpr int64_t padded(int64_t n) {
  return (n + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

// One token as a product sees it, padded. `x` is bf16; the result is exact for both formats.
void load_activation(const Bf16* x, int64_t n, Activation activation, float* out);
// The same from bf16 values that are float32 already, in place.
void round_activation(float* x, int64_t n, Activation activation);

// Tokens whose activations stay in the second-level cache while weights pass by.
int64_t tokens_at_once(int64_t n_in);

// out[t * out_stride + o - rows.begin] = sum_i x[t][i] * weight[o, i], o in `rows`, t < n_tokens.
struct Multiply {
  const WeightMatrix* weight;
  Share rows;
  const float* const* x;  // [n_tokens] padded rows
  int64_t n_tokens;
  float* out;
  int64_t out_stride;
};
void multiply(const Multiply& args, Scratch& scratch);

}  // namespace quire::cpu
