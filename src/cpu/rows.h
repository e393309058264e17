// Vector work on one row at a time: norms, gates, softmax. Conversions are tensor/convert.h.
//
// Sums run over 16 lanes in one order (cpu/lanes-inl.h). Rows may have any length and alignment.
#pragma once

#include <cstdint>

#include "tensor/convert.h"

namespace quire::cpu {

// The largest of x, as far as x has no NaN. n > 0.
float largest(const float* x, int64_t n);
// out[i] = exp((x[i] - shift) * factor); returns the sum, in float64 over 16 lanes of float32.
double exp_row(const float* x, int64_t n, float shift, float factor, float* out);

// out[i] = 1 / (1 + exp(-x[i])).
void sigmoid_row(const float* x, int64_t n, float* out);

// The ops of the same names, on a row.
void rms_norm_row(const Bf16* x, const Bf16* weight, int64_t n, float eps, Bf16* out);
// In place, as ops::rope: n pairs.
void rotate_row(const float* cos, const float* sin, int64_t n, Bf16* x);
void add_row(const Bf16* a, const Bf16* b, int64_t n, Bf16* out);
void silu_mul_row(const Bf16* gate, const Bf16* up, int64_t n, Bf16* out);
// The same between two products: rounds gate and up to bf16 first, as a store would have. The
// result is a bf16 value in a float32. `out` may be `gate` or `up`.
void silu_mul_row(const float* gate, const float* up, int64_t n, float* out);
// out[i] = bf16(x[i] / divisor).
void divide_row(const float* x, float divisor, int64_t n, Bf16* out);
// sum[i] += weight * bf16(x[i]), in float32.
void add_weighted_row(const float* x, float weight, int64_t n, float* sum);

// One page of online softmax. scores[0, 64) are the raw products of n >= 1 visible tokens (the rest
// is ignored); they become exp(scale * score - new largest), zero from n on.
struct OnlineSoftmax {
  float largest;
  float total;
};
// Updates `state`; returns what earlier sums are to be multiplied by.
float softmax_page(float* scores, int64_t n, float scale, OnlineSoftmax* state);

}  // namespace quire::cpu
