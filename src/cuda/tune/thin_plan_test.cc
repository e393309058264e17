#include "cuda/tune/thin_plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "cuda/tune/model_matrices.h"

namespace quire::cuda {

namespace {

constexpr int kSms = 132;

ThinShape shape_of(const ModelMatrix& m, int64_t n_tokens = 1) {
  return {.format = WeightFormat::bf16,
          .n_tokens = n_tokens,
          .n_in = m.n_in,
          .n_row_tiles = div_up(m.n_out, int64_t{kThinRows}),
          .n_chunks = div_up(m.n_in, int64_t{32}),
          .n_warps = 8};
}

TEST(ThinPlanTest, EveryShapeHasAPlan) {
  for (const ModelMatrix& m : kModelMatrices) {
    for (const int n_sms : {1, kSms}) {
      for (const int64_t n_tokens : {1, 8, 24}) {
        const int splits = thin_plan(shape_of(m, n_tokens), n_sms).splits;
        EXPECT_GE(splits, 1);
        EXPECT_LE(splits, kThinSplitsMax);
      }
    }
  }
}

// Of Kimi K2's rank: the router and q_b, but not what leads into attention or out of it, nor the
// head; no quantised product.
TEST(ThinPlanTest, SmallProductsOfBf16TakeMoreTokens) {
  EXPECT_EQ(thin_tokens_max(WeightFormat::bf16, 384, 7168), 24);
  EXPECT_EQ(thin_tokens_max(WeightFormat::bf16, 1536, 1536), 24);
  EXPECT_EQ(thin_tokens_max(WeightFormat::bf16, 2112, 7168), 16);
  EXPECT_EQ(thin_tokens_max(WeightFormat::bf16, 7168, 1024), 16);
  EXPECT_EQ(thin_tokens_max(WeightFormat::bf16, 20480, 7168), 16);
  EXPECT_EQ(thin_tokens_max(WeightFormat::fp8_block128, 1536, 1536), 16);
  EXPECT_EQ(thin_tokens_max(WeightFormat::int4_group, 384, 7168), 16);
}

TEST(ThinPlanTest, SumsAreSharedWhereTilesAreFew) {
  EXPECT_EQ(thin_plan(shape_of({2112, 7168}), kSms).splits, 2);
  EXPECT_EQ(thin_plan(shape_of({384, 7168}), kSms).splits, 7);
  EXPECT_EQ(thin_plan(shape_of({1536, 1536}), kSms).splits, 2);
  EXPECT_EQ(thin_plan(shape_of({20480, 7168}), kSms).splits, 1);
}

TEST(ThinPlanTest, BlocksOfHiddenInputsStandAloneWhereAllDo) {
  for (const int64_t n_tokens : {1, 8, 16}) {
    EXPECT_TRUE(thin_plan(shape_of({2112, 7168}, n_tokens), kSms).is_alone);
    EXPECT_TRUE(thin_plan(shape_of({384, 7168}, n_tokens), kSms).is_alone);
    EXPECT_FALSE(thin_plan(shape_of({1536, 1536}, n_tokens), kSms).is_alone);
    EXPECT_FALSE(thin_plan(shape_of({20480, 7168}, n_tokens), kSms).is_alone);
  }
}

// The low-rank projections' ring, and q_b without a cluster, from two tokens on.
TEST(ThinPlanTest, SomeTokensHaveDeeperRings) {
  EXPECT_EQ(thin_plan(shape_of({1536, 1536}, 8), kSms).splits, 1);
  for (const int64_t n_tokens : {2, 8}) {
    EXPECT_EQ(thin_plan(shape_of({2112, 7168}, n_tokens), kSms).ring, ThinRing::two_thirds);
    EXPECT_EQ(thin_plan(shape_of({1536, 1536}, n_tokens), kSms).ring, ThinRing::two_thirds);
    EXPECT_EQ(thin_plan(shape_of({7168, 1024}, n_tokens), kSms).ring, ThinRing::half);
    EXPECT_EQ(thin_plan(shape_of({384, 7168}, n_tokens), kSms).ring, ThinRing::half);
  }
  for (const int64_t n_tokens : {1, 9}) {
    EXPECT_EQ(thin_plan(shape_of({2112, 7168}, n_tokens), kSms).ring, ThinRing::half);
    EXPECT_EQ(thin_plan(shape_of({1536, 1536}, n_tokens), kSms).splits, 2);
  }
  ThinShape fp8 = shape_of({2112, 7168}, 8);
  fp8.format = WeightFormat::fp8_block128;
  EXPECT_EQ(thin_plan(fp8, kSms).ring, ThinRing::half);
}

}  // namespace

}  // namespace quire::cuda
