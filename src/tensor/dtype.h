// Element types: the run-time name, and the storage types that C++20 lacks.
//
// Bf16 and Fp8E4m3 are bits, not arithmetic: convert to float, compute, convert back. Conversions
// of single values are here because everything needs them; arrays are tensor/convert.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace quire {

enum class Dtype : uint8_t { bf16, f32, f16, f8_e4m3, i32, i64, u8, i8 };

constexpr int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::i64:
      return 8;
    case Dtype::f8_e4m3:
    case Dtype::u8:
    case Dtype::i8:
      return 1;
  }
  return 0;
}

std::string_view name(Dtype dtype);

// bfloat16: the upper half of a float32.
struct Bf16 {
  uint16_t bits = 0;
};

constexpr float to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Rounds to nearest even; NaN stays NaN (quiet), infinities stay.
constexpr Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

// OCP e4m3 ("fn"): bias 7, no infinities, 0x7f and 0xff are NaN, largest finite 448.
// Source: OCP 8-bit Floating Point Specification 1.0, table 1.
struct Fp8E4m3 {
  uint8_t bits = 0;
};

inline constexpr float kFp8Max = 448.0F;

constexpr float to_float(Fp8E4m3 x) {
  const uint32_t magnitude = x.bits & 0x7fU;
  const float sign = (x.bits & 0x80U) != 0 ? -1.0F : 1.0F;
  if (magnitude == 0x7fU) return std::bit_cast<float>(0x7fc00000U);
  const uint32_t exponent = magnitude >> 3;
  const uint32_t mantissa = magnitude & 7U;
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9F;
  return sign * std::bit_cast<float>(((exponent + 120U) << 23) | (mantissa << 20));
}

// Rounds to nearest even and saturates at +-448; NaN stays NaN.
Fp8E4m3 to_fp8_e4m3(float x);

}  // namespace quire
