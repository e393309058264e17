// Against the single-value conversions of tensor/dtype.h, over every bit pattern that counts.
#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace quire {

namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

TEST(Convert, EveryBf16ToFloatAndBack) {
  std::vector<Bf16> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(x.size());
  bf16_to_float(x.data(), 65536, wide.data());
  std::vector<Bf16> back(x.size());
  float_to_bf16(wide.data(), 65536, back.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(bits_of(wide[i]), bits_of(to_float(x[i])));
    ASSERT_EQ(back[i].bits, to_bf16(wide[i]).bits);
  }
}

TEST(Convert, FloatToBf16RoundsAsTheScalar) {
  Rng rng(1);
  std::vector<float> x(100'003);  // the last three fill no register
  for (float& value : x) value = std::bit_cast<float>(static_cast<uint32_t>(rng.next_u64()));
  std::vector<Bf16> out(x.size());
  float_to_bf16(x.data(), static_cast<int64_t>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i].bits, to_bf16(x[i]).bits) << x[i];
}

TEST(Convert, EveryFp8ToFloat) {
  std::vector<Fp8E4m3> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<uint8_t>(i);
  std::vector<float> out(x.size());
  fp8_to_float(x.data(), 256, 0.75F, out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const float expected = to_float(x[i]) * 0.75F;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    } else {
      ASSERT_EQ(bits_of(out[i]), bits_of(expected)) << i;
    }
  }
}

TEST(Convert, FloatToFp8RoundsAsTheScalar) {
  // Every tie and its neighbours, the ends of the range, and random bits.
  std::vector<float> x = {0.0F, -0.0F, 448, 449, 464, 465, 1e30F, -1e30F, INFINITY, -INFINITY, NAN};
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float low = to_float(Fp8E4m3{static_cast<uint8_t>(code)});
    const float middle = (low + to_float(Fp8E4m3{static_cast<uint8_t>(code + 1)})) / 2;
    for (const float value : {low, middle, std::nextafter(middle, 0.0F),
                              std::nextafter(middle, std::numeric_limits<float>::max())}) {
      x.push_back(value);
      x.push_back(-value);
    }
  }
  Rng rng(2);
  while (x.size() < 20'005) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng.next_u64())));
    x.push_back((rng.next_float() - 0.5F) * 900);
  }
  std::vector<Fp8E4m3> out(x.size());
  float_to_fp8(x.data(), static_cast<int64_t>(x.size()), 1.0F, out.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i].bits, to_fp8_e4m3(x[i]).bits) << x[i];
}

TEST(Convert, EveryInt8ToFloat) {
  std::vector<int8_t> x;
  for (int i = -128; i < 128; ++i) x.push_back(static_cast<int8_t>(i));
  x.push_back(77);  // fills no register
  std::vector<float> out(x.size());
  int8_to_float(x.data(), static_cast<int64_t>(x.size()), 0.75F, out.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(x[i]) * 0.75F) << i;
}

TEST(Convert, FloatToInt8RoundsToNearestEven) {
  std::vector<float> x;
  std::vector<int> expected;
  for (int i = -127; i < 127; ++i) {
    const auto low = static_cast<float>(i);
    const float middle = low + 0.5F;
    for (const float value :
         {low, middle, std::nextafter(middle, -200.0F), std::nextafter(middle, 200.0F)}) {
      x.push_back(4 * value);
      const bool is_up = value > middle || (value == middle && i % 2 != 0);
      expected.push_back(is_up ? i + 1 : i);
    }
  }
  x.push_back(508);  // fills no register
  expected.push_back(127);
  std::vector<int8_t> out(x.size());
  float_to_int8(x.data(), static_cast<int64_t>(x.size()), 0.25F, out.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], expected[i]) << x[i];
}

TEST(Convert, Int4ToFloat) {
  std::vector<uint8_t> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i);
  for (const int64_t group : {2, 32, 34, 128}) {
    const int64_t n = 512 / group * group;
    std::vector<Bf16> scales;
    for (int64_t i = 0; i < n / group; ++i) scales.push_back(to_bf16(0.5F + static_cast<float>(i)));
    std::vector<float> out(static_cast<size_t>(n));
    int4_to_float(x.data(), scales.data(), group, n, out.data());
    for (int64_t i = 0; i < n; ++i) {
      const int byte = x[static_cast<size_t>(i / 2)];
      const int nibble = i % 2 == 0 ? byte % 16 : byte / 16;
      const float scale = to_float(scales[static_cast<size_t>(i / group)]);
      ASSERT_EQ(out[static_cast<size_t>(i)], static_cast<float>(nibble - 8) * scale) << i;
    }
  }
}

TEST(Convert, LargestMagnitudeIgnoresNaN) {
  std::vector<float> x(40, 1.0F);
  x[3] = -7;
  x[20] = NAN;
  EXPECT_EQ(largest_magnitude(x.data(), 40), 7);
  EXPECT_EQ(largest_magnitude(x.data(), 0), 0);
}

}  // namespace

}  // namespace quire
