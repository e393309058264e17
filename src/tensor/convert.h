// Rows of stored numbers to float32 and back, in vector code: the bits of the single-value
// conversions of tensor/dtype.h on every machine. Rows may have any length and alignment.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace quire {

void bf16_to_float(const Bf16* x, int64_t n, float* out);
void float_to_bf16(const float* x, int64_t n, Bf16* out);
// out[i] = x[i] * scale; NaN stays NaN.
void fp8_to_float(const Fp8E4m3* x, int64_t n, float scale, float* out);
// out[i] = e4m3(x[i] / scale), as to_fp8_e4m3 rounds.
void float_to_fp8(const float* x, int64_t n, float scale, Fp8E4m3* out);
// out[i] = x[i] * scale.
void int8_to_float(const int8_t* x, int64_t n, float scale, float* out);
// out[i] = x[i] * factor to the nearest integer, ties to even; none is past 127.
void float_to_int8(const float* x, int64_t n, float factor, int8_t* out);
// A row of 4-bit weights, two a byte, low nibble first, and a scale for each `group` of them:
// out[i] = (nibble - 8) * scales[i / group]. n is a multiple of group, which is even.
void int4_to_float(const uint8_t* x, const Bf16* scales, int64_t group, int64_t n, float* out);

// max |x[i]| of what is not NaN; 0 when there is nothing.
float largest_magnitude(const float* x, int64_t n);

}  // namespace quire
