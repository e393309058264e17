#include "compress/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"

namespace quire {
namespace {

std::vector<float> draw(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = (rng.next_float() - 0.5F) * 0.2F;
  return out;
}

DecodedRows rows_of(const std::vector<float>& values, int64_t n_in, int64_t first_row = 0) {
  return {.values = values,
          .first_row = first_row,
          .n_rows = static_cast<int64_t>(values.size()) / n_in,
          .n_in = n_in};
}

// What the bytes mean, by docs/formats/weights.md.
float int4_value(const std::vector<std::byte>& packed, const std::vector<std::byte>& scales,
                 int64_t n_in, int64_t group, int64_t row, int64_t i) {
  const auto byte = static_cast<unsigned>(packed[static_cast<size_t>((row * n_in + i) / 2)]);
  const int nibble = static_cast<int>(i % 2 == 0 ? byte & 15 : byte >> 4);
  const auto at = static_cast<size_t>(row * (n_in / group) + i / group) * sizeof(Bf16);
  return static_cast<float>(nibble - 8) * to_float(load_le<Bf16>(scales, at));
}

TEST(Quantise, Int4BytesDecodeToWhatTheErrorSays) {
  const int64_t group = 32;
  // 1, 16 and 19 groups a row: less than a fit holds, one, and one with a tail.
  for (const int64_t n_in : {int64_t{32}, 16 * group, 19 * group}) {
    const std::vector<float> weights = draw(5 * n_in, static_cast<uint64_t>(n_in));
    std::vector<std::byte> packed(weights.size() / 2);
    std::vector<std::byte> scales(weights.size() / group * sizeof(Bf16));
    QuantisationError error;
    quantise_int4(rows_of(weights, n_in), group, packed.data(), scales.data(), &error);
    double off = 0;
    double size = 0;
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t i = 0; i < n_in; ++i) {
        const auto w = static_cast<double>(weights[static_cast<size_t>(row * n_in + i)]);
        const auto v = static_cast<double>(int4_value(packed, scales, n_in, group, row, i));
        off += (w - v) * (w - v);
        size += w * w;
      }
    }
    EXPECT_NEAR(error.relative(), std::sqrt(off / size), 1e-5);
    EXPECT_LT(error.relative(), 0.1);
    EXPECT_GT(error.cosine(), 0.99);
    EXPECT_GE(error.worst, error.relative());
    EXPECT_LT(error.worst_group, n_in / group);
  }
}

TEST(Quantise, RowsDoNotDependOnEachOther) {
  const int64_t n_in = 256;
  const std::vector<float> weights = draw(8 * n_in, 3);
  const auto run = [&](int64_t first, int64_t n) {
    const std::vector<float> part(weights.begin() + first * n_in,
                                  weights.begin() + (first + n) * n_in);
    std::vector<std::byte> packed(part.size() / 2);
    std::vector<std::byte> scales(part.size() / kNvfp4Group);
    QuantisationError error;
    quantise_nvfp4(rows_of(part, n_in, first), 0.001F, packed.data(), scales.data(), &error);
    packed.insert(packed.end(), scales.begin(), scales.end());
    return std::pair(packed, error);
  };
  const auto [whole, error] = run(0, 8);
  QuantisationError in_parts;
  for (int64_t first = 0; first < 8; first += 2) {
    const auto [part, of_part] = run(first, 2);
    in_parts.merge(of_part);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + first * n_in / 2,
                          static_cast<size_t>(2 * n_in / 2)),
              0);
  }
  EXPECT_EQ(in_parts.worst, error.worst);
  EXPECT_EQ(in_parts.worst_row, error.worst_row);
  EXPECT_EQ(in_parts.worst_group, error.worst_group);
  EXPECT_DOUBLE_EQ(in_parts.error, error.error);
}

TEST(Quantise, Fp8CodesAreTheNearestOfEverySize) {
  // Every code, what lies half way to the next and beside it, of both signs; the scale is 1.
  std::vector<float> weights;
  for (int code = 0; code < 0x7e; ++code) {
    const float low = to_float(Fp8E4m3{static_cast<uint8_t>(code)});
    const float high = to_float(Fp8E4m3{static_cast<uint8_t>(code + 1)});
    const float middle = (low + high) / 2;
    for (const float x : {low, std::nextafter(middle, low), middle, std::nextafter(middle, high)}) {
      weights.push_back(x);
      weights.push_back(-x);
    }
  }
  weights.push_back(kFp8Max);
  weights.resize(128 * 128, -kFp8Max);
  std::vector<std::byte> codes(weights.size());
  std::vector<std::byte> scales(sizeof(float));
  QuantisationError error;
  quantise_fp8(rows_of(weights, 128), codes.data(), scales.data(), &error);
  ASSERT_EQ(load_le<float>(scales, 0), 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(static_cast<uint8_t>(codes[i]), to_fp8_e4m3(weights[i]).bits) << weights[i];
  }
}

TEST(Quantise, Fp8BlocksHaveTheirOwnScaleAndRaggedOnesToo) {
  const int64_t n_in = 200;
  std::vector<float> weights = draw(130 * n_in, 4);
  weights[static_cast<size_t>(129 * n_in + 199)] = -7;  // the last block: 2 x 72
  std::vector<std::byte> codes(weights.size());
  std::vector<float> scales(4);
  QuantisationError error;
  quantise_fp8(rows_of(weights, n_in), codes.data(), reinterpret_cast<std::byte*>(scales.data()),
               &error);
  EXPECT_EQ(scales[3], 7.0F / 448);
  EXPECT_EQ(codes.back(), static_cast<std::byte>(0xfe));  // -448
  std::vector<float> back(weights.size());
  decode_rows({.dtype = Dtype::f8_e4m3,
               .values = codes,
               .block_scales = scales,
               .first_row = 0,
               .n_rows = 130,
               .n_in = n_in},
              back.data());
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t row = i / n_in;
    const float scale = scales[row / 128 * 2 + i % n_in / 128];
    // Half a step of a 3-bit mantissa, or of the smallest numbers.
    EXPECT_LE(std::abs(back[i] - weights[i]), std::abs(weights[i]) / 16 + scale * 0x1p-10F);
  }
  EXPECT_TRUE(error.worst_row == 0 || error.worst_row == 128);
  EXPECT_LT(error.worst_group, 2);
  EXPECT_GE(error.worst, error.relative());
}

TEST(Quantise, FindsTheFirstNumberThatIsNone) {
  std::vector<float> values = draw(5000, 5);
  EXPECT_EQ(find_not_finite(values), -1);
  values[4999] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(find_not_finite(values), 4999);
  values[1025] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find_not_finite(values), 1025);
}

TEST(Quantise, Bf16IsRoundedOnceAndSaysSo) {
  const std::vector<float> weights = draw(640, 6);
  std::vector<std::byte> out(weights.size() * sizeof(Bf16));
  QuantisationError error;
  round_to_bf16(rows_of(weights, 64), out.data(), &error);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(load_le<Bf16>(out, i * sizeof(Bf16)).bits, to_bf16(weights[i]).bits);
  }
  EXPECT_GT(error.relative(), 0);
  EXPECT_LT(error.relative(), 0x1p-9);
}

TEST(Quantise, NothingLostIsNoError) {
  const QuantisationError none;
  EXPECT_EQ(none.relative(), 0);
  EXPECT_EQ(none.cosine(), 1);
}

}  // namespace
}  // namespace quire
