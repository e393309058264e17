#include "compress/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "compress/products.h"
#include "tensor/targets.h"

// After tensor/targets.h, which it must agree with.
#include <hwy/targets.h>

namespace quire {
namespace {

std::vector<float> draw(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = rng.next_float() - 0.5F;
  return out;
}

// Tokens that lie near a space of a quarter as many dimensions, always the same one, [n_tokens,
// n_in].
std::vector<float> draw_correlated(int64_t n_tokens, int64_t n_in, uint64_t seed) {
  const int64_t n_causes = n_in / 4;
  const std::vector<float> causes = draw(n_tokens * n_causes, seed);
  const std::vector<float> mix = draw(n_causes * n_in, 1000);
  std::vector<float> out = draw(n_tokens * n_in, seed + 500);
  for (float& x : out) x *= 0.1F;
  add_products({.a = causes.data(),  // read as [n_causes, n_tokens]: any causes do
                .b = mix.data(),
                .c = out.data(),
                .a_stride = n_tokens,
                .b_stride = n_in,
                .c_stride = n_in,
                .n_terms = n_causes,
                .n_rows = n_tokens,
                .n_columns = n_in});
  return out;
}

TransposedWeights draw_weights(int64_t n_in, int64_t n_out, uint64_t seed) {
  TransposedWeights out;
  out.reset(n_in, n_out);
  const std::vector<float> values = draw(n_in * n_out, seed);
  for (int64_t i = 0; i < n_in; ++i) {
    std::copy_n(values.data() + i * n_out, n_out, out.input(i));
  }
  return out;
}

InputMoments moments_of(const std::vector<float>& tokens, int64_t n_in, double damping = 0.01) {
  InputMoments out;
  out.reset(n_in);
  out.add(tokens.data(), static_cast<int64_t>(tokens.size()) / n_in);
  EXPECT_TRUE(out.factor(damping));
  return out;
}

// sum over tokens and rows of (x . d)^2, in double.
double output_square_of(const std::vector<float>& tokens, const TransposedWeights& rows) {
  double sum = 0;
  const auto n_tokens = static_cast<int64_t>(tokens.size()) / rows.n_in;
  for (int64_t token = 0; token < n_tokens; ++token) {
    for (int64_t row = 0; row < rows.n_out; ++row) {
      double output = 0;
      for (int64_t i = 0; i < rows.n_in; ++i) {
        output += static_cast<double>(tokens[static_cast<size_t>(token * rows.n_in + i)]) *
                  static_cast<double>(rows.input(i)[row]);
      }
      sum += output * output;
    }
  }
  return sum;
}

TEST(Products, AddTermAfterTerm) {
  for (const ProductSign sign : {ProductSign::plus, ProductSign::minus}) {
    // More than a strip of terms, and columns and rows with tails.
    const int64_t n_terms = 200;
    const int64_t n_rows = 11;
    const int64_t n_columns = 48;
    const std::vector<float> a = draw(n_terms * n_rows, 1);
    const std::vector<float> b = draw(n_terms * n_columns, 2);
    std::vector<float> c = draw(n_rows * n_columns, 3);
    std::vector<float> expected = c;
    for (int64_t k = n_terms - 1; k >= 0; --k) {
      for (int64_t i = 0; i < n_rows; ++i) {
        for (int64_t j = 0; j < n_columns; ++j) {
          const float term =
              a[static_cast<size_t>(k * n_rows + i)] * b[static_cast<size_t>(k * n_columns + j)];
          float& to = expected[static_cast<size_t>(i * n_columns + j)];
          to = sign == ProductSign::plus ? to + term : to - term;
        }
      }
    }
    add_products({.a = a.data() + (n_terms - 1) * n_rows,
                  .b = b.data() + (n_terms - 1) * n_columns,
                  .c = c.data(),
                  .a_stride = -n_rows,
                  .b_stride = -n_columns,
                  .c_stride = n_columns,
                  .n_terms = n_terms,
                  .n_rows = n_rows,
                  .n_columns = n_columns,
                  .sign = sign});
    EXPECT_EQ(c, expected);
  }
}

TEST(InputMoments, FactorMultipliesBackToTheMoments) {
  const int64_t n_in = 160;  // more than one block of rows
  const std::vector<float> tokens = draw_correlated(300, n_in, 5);
  const InputMoments moments = moments_of(tokens, n_in);
  double trace = 0;
  for (const float x : tokens) trace += static_cast<double>(x) * static_cast<double>(x);
  const auto lambda = static_cast<double>(moments.lambda());
  EXPECT_NEAR(lambda, 0.01 * trace / n_in, 1e-5 * trace / n_in);
  for (int64_t i = 0; i < n_in; i += 7) {
    for (int64_t j = 0; j <= i; j += 3) {
      double product = 0;
      for (int64_t k = 0; k <= j; ++k) {
        product += static_cast<double>(moments.row(i)[k]) * static_cast<double>(moments.row(j)[k]);
      }
      double expected = i == j ? lambda : 0;
      for (size_t t = 0; t < tokens.size(); t += n_in) {
        expected += static_cast<double>(tokens[t + static_cast<size_t>(i)]) *
                    static_cast<double>(tokens[t + static_cast<size_t>(j)]);
      }
      EXPECT_NEAR(product, expected, 2e-5 * trace / n_in) << i << ", " << j;
      EXPECT_EQ(moments.row(i)[j], moments.row(j)[i]);
    }
  }
}

TEST(InputMoments, WithoutAPivotThereIsNoFactor) {
  InputMoments moments;
  moments.reset(32);
  EXPECT_FALSE(moments.factor(0.01));  // nothing was seen
  moments.reset(32);
  const std::vector<float> tokens(32, 1.0F);
  moments.add(tokens.data(), 1);
  EXPECT_FALSE(moments.factor(0));    // one direction, no damping
  EXPECT_TRUE(moments.factor(0.01));  // the moments are still there
}

TEST(Gptq, OutputSquareIsOverTheTokens) {
  const int64_t n_in = 160;
  const int64_t n_tokens = 70;  // a tail of what is held at a time
  const std::vector<float> tokens = draw_correlated(n_tokens, n_in, 9);
  std::vector<float> inputs(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) inputs[i % n_in * n_tokens + i / n_in] = tokens[i];
  const TransposedWeights rows = draw_weights(n_in, 70, 4);  // a tail of a fit
  const double expected = output_square_of(tokens, rows);
  EXPECT_NEAR(output_square(inputs, rows), expected, 1e-5 * expected);
}

TEST(Gptq, OutputsOfCorrelatedInputsAreMuchNearerThanByRounding) {
  for (const int64_t group : {32, 128}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const int64_t n_in = 256;
      const std::vector<float> tokens = draw_correlated(600, n_in, 20 + seed);
      const InputMoments moments = moments_of(tokens, n_in);
      const TransposedWeights weights = draw_weights(n_in, 40, 30 + seed);
      Int4Codes nearest;
      round_int4(weights, group, &nearest);
      Int4Codes codes;
      TransposedWeights carried;
      round_int4_for(moments, weights, group, &carried, &codes);
      const double before = output_square_of(tokens, nearest.error);
      const double after = output_square_of(tokens, codes.error);
      EXPECT_LT(after, 0.36 * before) << "group " << group << " seed " << seed;
      // And on tokens that it has not seen.
      const std::vector<float> others = draw_correlated(600, n_in, 50 + seed);
      EXPECT_LT(output_square_of(others, codes.error),
                0.5 * output_square_of(others, nearest.error));
    }
  }
}

// The rule itself: what is left of an output's error along each row of the factor is at most half a
// step of the code there, unless the code is at an end of its range.
TEST(Gptq, EveryCodeIsTheBestGivenThoseBehindIt) {
  const int64_t n_in = 256;
  const int64_t group = 32;
  const InputMoments moments = moments_of(draw_correlated(500, n_in, 77), n_in);
  const TransposedWeights weights = draw_weights(n_in, 19, 78);
  Int4Codes out;
  TransposedWeights carried;
  round_int4_for(moments, weights, group, &carried, &out);
  int n_inside = 0;
  for (int64_t i = 0; i < n_in; ++i) {
    for (int64_t row = 0; row < weights.n_out; ++row) {
      const uint8_t code = out.codes[static_cast<size_t>(i * weights.n_lanes + row)];
      const auto scale = static_cast<double>(
          to_float(out.scales[static_cast<size_t>(i / group * weights.n_lanes + row)]));
      const double value = (code - 8) * scale;
      EXPECT_NEAR(static_cast<double>(weights.input(i)[row]) - value,
                  static_cast<double>(out.error.input(i)[row]), 1e-6);
      ASSERT_LE(code, 15);
      if (code == 0 || code == 15) continue;
      double left = 0;
      for (int64_t j = i; j < n_in; ++j) {
        left +=
            static_cast<double>(moments.row(j)[i]) * static_cast<double>(out.error.input(j)[row]);
      }
      EXPECT_LE(std::abs(left), static_cast<double>(moments.row(i)[i]) * scale * 0.501);
      ++n_inside;
    }
  }
  EXPECT_GT(n_inside, n_in * weights.n_out / 2);
}

TEST(Gptq, InputsThatHaveNothingToDoWithEachOtherAreRounded) {
  const int64_t n_in = 64;
  std::vector<float> tokens(static_cast<size_t>(n_in * n_in), 0.0F);
  for (int64_t i = 0; i < n_in; ++i) tokens[static_cast<size_t>(i * n_in + i)] = 1;
  const InputMoments moments = moments_of(tokens, n_in);
  const TransposedWeights weights = draw_weights(n_in, 16, 3);
  Int4Codes nearest;
  round_int4(weights, 32, &nearest);
  Int4Codes codes;
  TransposedWeights carried;
  round_int4_for(moments, weights, 32, &carried, &codes);
  EXPECT_EQ(codes.codes, nearest.codes);
  EXPECT_EQ(
      std::memcmp(codes.scales.data(), nearest.scales.data(), codes.scales.size() * sizeof(Bf16)),
      0);
  EXPECT_EQ(codes.error.values, nearest.error.values);
}

std::vector<float> run_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target | HWY_SSE4);
  hwy::GetChosenTarget().DeInit();
  const InputMoments moments = moments_of(draw_correlated(300, 160, 1), 160);
  Int4Codes codes;
  TransposedWeights carried;
  round_int4_for(moments, draw_weights(160, 20, 2), 32, &carried, &codes);
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  return codes.error.values;
}

TEST(Gptq, EveryInstructionSetGivesTheSameBits) {
  const int64_t supported = hwy::SupportedTargets();
  const std::vector<float> expected = run_on(HWY_SSE4);
  for (const int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if ((supported & target) == 0) continue;
    EXPECT_EQ(run_on(target), expected) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace quire
