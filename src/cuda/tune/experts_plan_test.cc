#include "cuda/tune/experts_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

// Kimi K2 and GLM-5, any number of ranks (experts are cut along their inner size); kimi-nano.
constexpr ExpertsShape kModels[] = {{0, 8, 384, 7168}, {0, 8, 256, 6144}, {0, 2, 8, 256}};
constexpr int64_t kTokensMax = 16384;

ExpertsShape with_tokens(ExpertsShape shape, int64_t n_tokens) {
  shape.n_tokens = n_tokens;
  return shape;
}

TEST(ExpertsPlan, FewTokensTakeTurns) {
  for (const ExpertsShape& model : kModels) {
    for (const int64_t n : {1, 8, 64, 192}) {
      EXPECT_EQ(plan_experts(with_tokens(model, n)).turn_tokens, 64);
    }
    EXPECT_EQ(plan_experts(with_tokens(model, 193)).turn_tokens, 0);
  }
}

TEST(ExpertsPlan, OneWayForEveryBatchWhereBitsMustNotDiffer) {
  for (ExpertsShape model : kModels) {
    model.bits = BatchBits::must_not;
    for (const int64_t n : {1, 64, 193, 8192}) {
      EXPECT_EQ(plan_experts(with_tokens(model, n)).turn_tokens, 64);
    }
  }
}

TEST(ExpertsPlan, ManyTokensOfInt4PassThroughSharedMemory) {
  for (ExpertsShape model : kModels) {
    for (const WeightFormat format :
         {WeightFormat::bf16, WeightFormat::fp8_block128, WeightFormat::int4_group}) {
      const bool is_int4 = format == WeightFormat::int4_group;
      model.format = format;
      model.bits = BatchBits::may_differ;
      EXPECT_FALSE(plan_experts(with_tokens(model, 32)).by_ring);
      EXPECT_EQ(plan_experts(with_tokens(model, 33)).by_ring, is_int4);
      EXPECT_EQ(plan_experts(with_tokens(model, 192)).by_ring, is_int4);
      EXPECT_FALSE(plan_experts(with_tokens(model, 193)).by_ring);
      model.bits = BatchBits::must_not;
      EXPECT_FALSE(plan_experts(with_tokens(model, 64)).by_ring);
    }
  }
}

TEST(ExpertsPlan, LaunchesCoverAllOutputsInWhatIsClaimed) {
  for (const ExpertsShape& model : kModels) {
    for (int64_t n = 193; n <= kTokensMax; n += 61) {
      const ExpertsPlan plan = plan_experts(with_tokens(model, n));
      ASSERT_EQ(plan.n_blocks, div_up(model.hidden, kPromptBlockRows));
      ASSERT_GE(plan.blocks, 1);
      ASSERT_LE(plan.blocks, plan.n_blocks);
      ASSERT_GE(plan.unit_blocks, 1);
      ASSERT_LE(plan.unit_blocks, plan.blocks);
      const int64_t rows = n * (model.top_k + 1);
      ASSERT_LE(rows * plan.blocks * kPromptBlockRows * 2, plan.partial_bytes);
    }
  }
}

// The largest step decides the workspace; a smaller one must not make it grow.
TEST(ExpertsPlan, FewerTokensClaimNoMore) {
  for (const ExpertsShape& model : kModels) {
    int64_t claimed = 0;
    for (int64_t n = 1; n <= kTokensMax; n += 61) {
      const int64_t bytes = plan_experts(with_tokens(model, n)).partial_bytes;
      ASSERT_GE(bytes, claimed) << n;
      claimed = bytes;
    }
  }
}

TEST(ExpertsPlan, TilesFollowTheNumberOfTokensOfAnExpert) {
  const ExpertsShape kimi = kModels[0];
  EXPECT_EQ(plan_experts(with_tokens(kimi, 1024)).tile_tokens, 32);  // 21 an expert
  EXPECT_EQ(plan_experts(with_tokens(kimi, 2048)).tile_tokens, 64);  // 43
  EXPECT_EQ(plan_experts(with_tokens(kimi, 4096)).tile_tokens, 96);  // 85
  EXPECT_EQ(plan_experts(with_tokens(kimi, 8192)).tile_tokens, 96);  // 171: two tiles
}

}  // namespace

}  // namespace quire::cuda
