#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire {
namespace {

// Kimi K2.5 and later; K2 Instruct differs in factor 32 and beta_fast 1.
RopeConfig kimi(double factor, double beta_fast) {
  return {.theta = 50000,
          .type = "yarn",
          .yarn = YarnConfig{.factor = factor,
                             .original_max_positions = 4096,
                             .beta_fast = beta_fast,
                             .beta_slow = 1,
                             .mscale = 1,
                             .mscale_all_dim = 1}};
}

TEST(RopeTable, PlainFrequencies) {
  const std::vector<double> frequencies = rope_frequencies({.theta = 10000}, 64);
  ASSERT_EQ(frequencies.size(), 32U);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_NEAR(frequencies[16], 0.01, 1e-15);
}

// Pairs up to 8 are left alone and from 20 on interpolated fully: low 8 and high 20 follow from
// 8.914 and 19.165.
TEST(RopeTable, TheRampOfKimiK25) {
  const std::vector<double> plain = rope_frequencies({.theta = 50000}, 64);
  const std::vector<double> yarn = rope_frequencies(kimi(64, 32), 64);
  for (size_t i = 0; i <= 8; ++i) EXPECT_DOUBLE_EQ(yarn[i], plain[i]) << i;
  for (size_t i = 20; i < 32; ++i) EXPECT_DOUBLE_EQ(yarn[i], plain[i] / 64) << i;
  for (size_t i = 9; i < 20; ++i) {
    EXPECT_LT(yarn[i], plain[i]) << i;
    EXPECT_GT(yarn[i], plain[i] / 64) << i;
  }
  EXPECT_NEAR(yarn[14], plain[14] * (0.5 + 0.5 / 64), 1e-15);
}

TEST(RopeTable, TheRampOfKimiK2IsAStep) {
  const std::vector<double> plain = rope_frequencies({.theta = 50000}, 64);
  const std::vector<double> yarn = rope_frequencies(kimi(32, 1), 64);
  EXPECT_DOUBLE_EQ(yarn[19], plain[19]);
  EXPECT_DOUBLE_EQ(yarn[20], plain[20] / 32);
}

TEST(RopeTable, FactorsOfMagnitude) {
  EXPECT_NEAR(yarn_softmax_factor(*kimi(64, 32).yarn), 2.004740, 1e-6);
  EXPECT_NEAR(yarn_softmax_factor(*kimi(32, 1).yarn), 1.813260, 1e-6);
  EXPECT_DOUBLE_EQ(yarn_cos_sin_factor(*kimi(64, 32).yarn), 1);
  YarnConfig no_mscale = *kimi(64, 32).yarn;
  no_mscale.mscale_all_dim = 0;
  EXPECT_DOUBLE_EQ(yarn_softmax_factor(no_mscale), 1);
  EXPECT_NEAR(yarn_cos_sin_factor(no_mscale), 0.1 * std::log(64) + 1, 1e-12);
  no_mscale.attention_factor = 1.25;
  EXPECT_DOUBLE_EQ(yarn_cos_sin_factor(no_mscale), 1.25);
}

}  // namespace
}  // namespace quire
