#include "cuda/tune/wide_plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "cuda/tune/model_matrices.h"

namespace quire::cuda {

namespace {

constexpr int64_t kTokens[] = {1, 16, 17, 32, 33, 64, 65, 128, 129, 1000, 8192};
constexpr int kSms = 132;

WideShape shape_of(const ModelMatrix& m, int64_t n_tokens) {
  return {.n_row_tiles = div_up(m.n_out, int64_t{kWideRows}),
          .n_chunks = div_up(m.n_in, int64_t{128}),
          .n_tokens = n_tokens};
}

void expect_possible(const WidePlan& plan, const WideShape& shape) {
  EXPECT_TRUE(plan.tokens == 32 || plan.tokens == 64 || plan.tokens == 128);
  EXPECT_GE(plan.splits, 1);
  EXPECT_LE(plan.splits, kWideSplitsMax);
  // Every block of a cluster has a share, and together they have all.
  EXPECT_LE(plan.splits, shape.n_chunks);
}

TEST(WidePlanTest, EveryShapeHasAPlan) {
  for (const ModelMatrix& m : kModelMatrices) {
    for (const int64_t n_tokens : kTokens) {
      const WideShape shape = shape_of(m, n_tokens);
      expect_possible(wide_plan(shape, kSms), shape);
      expect_possible(wide_plan_any(shape, kSms), shape);
      expect_possible(wide_plan(shape, 1), shape);
    }
  }
}

TEST(WidePlanTest, APlanForEveryBatchKnowsTheWeightsAlone) {
  for (const ModelMatrix& m : kModelMatrices) {
    const WidePlan first = wide_plan_any(shape_of(m, 1), kSms);
    for (const int64_t n_tokens : kTokens) {
      const WidePlan plan = wide_plan_any(shape_of(m, n_tokens), kSms);
      EXPECT_EQ(plan.tokens, first.tokens);
      EXPECT_EQ(plan.splits, first.splits);
    }
  }
}

TEST(WidePlanTest, FewTilesShareTheirSumsAndManyDoNot) {
  EXPECT_EQ(wide_plan(shape_of({2112, 7168}, 32), kSms).splits, 8);
  EXPECT_EQ(wide_plan(shape_of({2112, 7168}, 8192), kSms).splits, 1);
  // 36 tiles of seven blocks would take a second wave.
  EXPECT_EQ(wide_plan(shape_of({4608, 7168}, 64), kSms).splits, 6);
}

TEST(WidePlanTest, TilesAreNoLargerThanTheTokensAskFor) {
  EXPECT_EQ(wide_plan(shape_of({2112, 7168}, 17), kSms).tokens, 32);
  EXPECT_EQ(wide_plan(shape_of({2112, 7168}, 64), kSms).tokens, 64);
  EXPECT_EQ(wide_plan(shape_of({2112, 7168}, 65), kSms).tokens, 128);
}

TEST(WidePlan, TakesStepsOfSomeTokensFromBlas) {
  EXPECT_TRUE(wide_beats_blas(32, 2112, 7168));
  EXPECT_TRUE(wide_beats_blas(64, 7168, 1024));
  EXPECT_FALSE(wide_beats_blas(65, 7168, 1024));
  EXPECT_FALSE(wide_beats_blas(64, 20480, 7168));
  EXPECT_FALSE(wide_beats_blas(32, 384, 7168));  // the router
  EXPECT_TRUE(wide_beats_blas(33, 384, 7168));
}

}  // namespace

}  // namespace quire::cuda
