// Random values of the element types: a pure function of a seed and an index, in integer arithmetic
// and at most one rounding, so that every machine and device gives the same bits.
//
// For weights that nobody trained. Not for sampling (base/rng.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/rng.h"
#include "tensor/dtype.h"

namespace quire {

enum class RandomKind : uint8_t {
  normal_bf16,   // about normal, of standard deviation `scale`; never past 3.5 of them
  uniform_bf16,  // `scale` times 0.75 to 1.25
  uniform_f32,   // the same in float32
  e4m3,          // either sign, magnitude 2^-5 to 7.5; scale is not used
  nibbles,       // two packed ones a byte, worth -7 to 7 (0 twice as often); scale is not used
};

constexpr int64_t element_bytes(RandomKind kind) {
  switch (kind) {
    case RandomKind::normal_bf16:
    case RandomKind::uniform_bf16:
      return 2;
    case RandomKind::uniform_f32:
      return 4;
    case RandomKind::e4m3:
    case RandomKind::nibbles:
      return 1;
  }
  return 0;
}

// The standard deviations of what e4m3 values and nibbles (less 8) are worth. Of e4m3: 64 equally
// likely magnitudes, eight from 2^-5 on and their doubles up to 7.5.
inline constexpr double kE4m3Deviation = 2.3935;
inline constexpr double kNibbleDeviation = 4.1833;  // sqrt(17.5)

constexpr uint64_t random_bits(uint64_t seed, int64_t index) {
  return mix64(seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15U);
}

// The sum of four uniform draws of 16 bits has mean 131070 and deviation 2^16 / sqrt(3).
constexpr Bf16 random_normal(uint64_t bits, float scale) {
  const auto sum = static_cast<int32_t>((bits & 0xffffU) + (bits >> 16 & 0xffffU) +
                                        (bits >> 32 & 0xffffU) + (bits >> 48));
  return to_bf16(static_cast<float>(sum - 131070) * (scale * 2.6428996e-5F));
}

constexpr float random_near(uint64_t bits, float scale) {
  return scale * (0.75F + static_cast<float>(bits & 0xffU) * 0x1p-9F);
}

// Eight e4m3 out of eight random bytes: the sign as drawn, the magnitude's bits 0x10 to 0x4f.
constexpr uint64_t random_e4m3(uint64_t bits) {
  return (bits & 0xbfbfbfbfbfbfbfbfU) + 0x1010101010101010U;
}

// Sixteen nibbles: those that are 0 become 8. With -8 among the values their mean would be -1/2,
// and a network of such weights would run off along the direction in which all its values are
// equal.
constexpr uint64_t random_nibbles(uint64_t bits) {
  const uint64_t is_zero = ~(bits | bits >> 1 | bits >> 2 | bits >> 3) & 0x1111111111111111U;
  return bits | is_zero << 3;
}

// Elements [8 i, 8 i + 8) of the two kinds of one byte, the first in the lowest byte.
constexpr uint64_t random_eight(RandomKind kind, uint64_t seed, int64_t i) {
  const uint64_t bits = random_bits(seed, i);
  return kind == RandomKind::e4m3 ? random_e4m3(bits) : random_nibbles(bits);
}

// An array of random values, or a slice of a larger one: element (r, c) has index
// first + r * stride + c, so that it is the same whichever slice it is made with.
struct RandomArray {
  RandomKind kind = RandomKind::nibbles;
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  int64_t first = 0;   // >= 0
  int64_t stride = 0;  // >= n_columns
  uint64_t seed = 0;
  float scale = 1.0F;

  int64_t row_bytes() const { return n_columns * element_bytes(kind); }
  int64_t bytes() const { return n_rows * row_bytes(); }
};

// Row `row` of the array into host memory.
void random_row(const RandomArray& array, int64_t row, std::byte* out);

}  // namespace quire
