#include "tensor/dtype.h"

namespace quire {

std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return "BF16";
    case Dtype::f32:
      return "F32";
    case Dtype::f16:
      return "F16";
    case Dtype::f8_e4m3:
      return "F8_E4M3";
    case Dtype::i32:
      return "I32";
    case Dtype::i64:
      return "I64";
    case Dtype::u8:
      return "U8";
    case Dtype::i8:
      return "I8";
  }
  CHECK(false);
  return {};
}

Fp8E4m3 to_fp8_e4m3(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<uint8_t>(sign | 0x7fU)};
  const float size = std::bit_cast<float>(magnitude);
  // 464 is halfway between 448 and the 480 that e4m3 lacks; whatever passes 448 saturates.
  if (size >= kFp8Max) return {static_cast<uint8_t>(sign | 0x7eU)};
  if (size < 0x1p-6F) {
    // Subnormal: multiples of 2^-9. Adding 1.5 * 2^14 leaves a unit in the last place of 2^-9, so
    // that the addition itself rounds to nearest even.
    const float shifted = size + 0x1.8p14F;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xffU))};
  }
  // Normal: keep 3 of 23 mantissa bits, half to even; a carry moves into the exponent by itself.
  const uint32_t rounded = magnitude + 0x7ffffU + ((magnitude >> 20) & 1U);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120U << 3)))};
}

}  // namespace quire
