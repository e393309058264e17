#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3f80);             // halfway, to even
  EXPECT_EQ(to_bf16(1.0F + 0x1p-7F + 0x1p-8F).bits, 0x3f82);   // halfway, to even
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3f81);  // above halfway
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Fp8E4m3, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 256; ++bits) {
    const Fp8E4m3 x{static_cast<uint8_t>(bits)};
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(to_float(x)));
      continue;
    }
    EXPECT_EQ(to_fp8_e4m3(to_float(x)).bits, x.bits) << bits;
  }
}

// Against the definition: the nearest representable value, ties to the even code.
TEST(Fp8E4m3, RoundsToNearestEvenEverywhere) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = to_float(Fp8E4m3{static_cast<uint8_t>(code)});
    const float high = to_float(Fp8E4m3{static_cast<uint8_t>(code + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_fp8_e4m3(std::nextafter(middle, low)).bits, code);
    EXPECT_EQ(to_fp8_e4m3(std::nextafter(middle, high)).bits, code + 1);
    EXPECT_EQ(to_fp8_e4m3(middle).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(to_fp8_e4m3(-middle).bits, 0x80 | (code % 2 == 0 ? code : code + 1));
  }
}

TEST(Fp8E4m3, Saturates) {
  EXPECT_EQ(to_float(to_fp8_e4m3(1e9F)), 448.0F);
  EXPECT_EQ(to_float(to_fp8_e4m3(-std::numeric_limits<float>::infinity())), -448.0F);
  EXPECT_TRUE(std::isnan(to_float(to_fp8_e4m3(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace quire
