#include "cuda/tune/thin_plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "cuda/tune/model_matrices.h"

namespace quire::cuda {

namespace {

constexpr int kSms = 132;

ThinShape shape_of(const ModelMatrix& m) {
  return {.n_row_tiles = div_up(m.n_out, int64_t{kThinRows}),
          .n_chunks = div_up(m.n_in, int64_t{32}),
          .n_warps = 8};
}

TEST(ThinPlanTest, EveryShapeHasAPlan) {
  for (const ModelMatrix& m : kModelMatrices) {
    for (const int n_sms : {1, kSms}) {
      const int splits = thin_splits(shape_of(m), n_sms);
      EXPECT_GE(splits, 1);
      EXPECT_LE(splits, kThinSplitsMax);
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
  EXPECT_EQ(thin_splits(shape_of({2112, 7168}), kSms), 2);
  EXPECT_EQ(thin_splits(shape_of({384, 7168}), kSms), 7);
  EXPECT_EQ(thin_splits(shape_of({20480, 7168}), kSms), 1);
}

}  // namespace

}  // namespace quire::cuda
