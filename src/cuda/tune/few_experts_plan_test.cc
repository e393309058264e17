#include "cuda/tune/few_experts_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire::cuda {

namespace {

constexpr int64_t kMultiprocessors = 132;
constexpr int64_t kSharedBytesOfBlock = int64_t{227} << 10;

// A rank of eight of Kimi K2 (its shared expert in BF16) and of GLM-5 (in FP8), Kimi K2 on one, and
// kimi-nano.
constexpr FewExpertsShape kKimi{1, 8, 7168, 256, 256, 32, 224, kMultiprocessors};
constexpr FewExpertsShape kGlm{1, 8, 6144, 256, 256, 32, 96, kMultiprocessors};
constexpr FewExpertsShape kWholeKimi{1, 8, 7168, 2048, 2048, 256, 224, kMultiprocessors};
constexpr FewExpertsShape kNano{1, 2, 256, 128, 128, 16, 8, kMultiprocessors};
constexpr FewExpertsShape kModels[] = {kKimi, kGlm, kWholeKimi, kNano};

FewExpertsPlan plan_of(FewExpertsShape shape, int64_t n_tokens,
                       BatchBits bits = BatchBits::may_differ) {
  shape.n_tokens = n_tokens;
  shape.bits = bits;
  return plan_few_experts(shape);
}

TEST(FewExpertsPlan, TakesAHandfulOfTokens) {
  for (const FewExpertsShape& model : {kKimi, kGlm, kNano}) {
    for (int64_t n = 1; n <= kFewTokensMax; ++n) EXPECT_TRUE(plan_of(model, n).fits) << n;
  }
  EXPECT_TRUE(plan_of(kWholeKimi, 1).fits);
  for (const FewExpertsShape& model : kModels) {
    EXPECT_FALSE(plan_of(model, 0).fits);
    EXPECT_FALSE(plan_of(model, kFewTokensMax + 1).fits);
  }
  EXPECT_FALSE(plan_of({.n_tokens = 4, .top_k = 17, .hidden = 64, .inner = 64}, 4).fits);
}

TEST(FewExpertsPlan, NotWhereBitsMustNotDiffer) {
  EXPECT_FALSE(plan_of(kKimi, 1, BatchBits::must_not).fits);
}

TEST(FewExpertsPlan, BlocksFitInSharedMemory) {
  constexpr int64_t kLists = 4 << 10;
  for (const FewExpertsShape& model : kModels) {
    for (int64_t n = 1; n <= kFewTokensMax; ++n) {
      const FewExpertsPlan plan = plan_of(model, n);
      if (!plan.fits) continue;
      EXPECT_LE(plan.gate_up_shared_bytes + kLists, kSharedBytesOfBlock);
      EXPECT_LE(plan.down_shared_bytes + kLists, kSharedBytesOfBlock);
    }
  }
}

// Weights of down are read while gate and up still run: a block of each finds room.
TEST(FewExpertsPlan, BothKernelsOfOneTokenFitOnAMultiprocessor) {
  constexpr int64_t kSharedBytes = int64_t{228} << 10;
  constexpr int64_t kOfBlock = 3 << 10;  // lists, and what the system takes
  const FewExpertsPlan plan = plan_of(kKimi, 1);
  EXPECT_TRUE(plan.is_beside);
  EXPECT_LE(plan.gate_up_shared_bytes + plan.down_shared_bytes + 2 * kOfBlock, kSharedBytes);
  EXPECT_FALSE(plan_of(kKimi, 2).is_beside);
  EXPECT_FALSE(plan_of(kWholeKimi, 1).is_beside);
}

TEST(FewExpertsPlan, EveryBlockHasAPartOfTheSharedExpert) {
  EXPECT_EQ(plan_of(kKimi, 1).shared_parts, 4);  // 128 of 132 blocks
  EXPECT_EQ(plan_of(kGlm, 1).shared_parts, 4);
  EXPECT_EQ(plan_of(kWholeKimi, 1).shared_parts, 1);
  EXPECT_EQ(plan_of(kNano, 1).shared_parts, 1);  // fewer steps than warps
  FewExpertsShape none = kKimi;
  none.shared_inner = none.shared_tiles = none.shared_steps = 0;
  EXPECT_EQ(plan_of(none, 1).shared_sums, 0);
}

// The largest step decides the workspace; a smaller one must not make it grow.
TEST(FewExpertsPlan, FewerTokensClaimNoMore) {
  for (const FewExpertsShape& model : kModels) {
    int64_t claimed = 0;
    for (int64_t n = 1; n <= kFewTokensMax; ++n) {
      const FewExpertsPlan plan = plan_of(model, n);
      if (!plan.fits) continue;
      EXPECT_GE(plan.shared_sums, claimed);
      claimed = plan.shared_sums;
    }
  }
}

}  // namespace

}  // namespace quire::cuda
