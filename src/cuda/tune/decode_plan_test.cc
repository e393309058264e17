#include "cuda/tune/decode_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

constexpr int kSms = 132;
// Heads of Kimi K2 over 8, 4, 2 and 1 ranks, of kimi-nano, and a tile that is not full.
constexpr int64_t kHeads[] = {8, 16, 32, 64, 4, 3};
// Pages of 64 to 1 M tokens.
constexpr int64_t kWidths[] = {1, 16, 17, 128, 336, 2048, 4096, 16384};
constexpr BatchBits kBits[] = {BatchBits::may_differ, BatchBits::must_not};

template <class Body>
void for_each_shape(const Body& body) {
  for (const BatchBits bits : kBits) {
    for (const int64_t heads : kHeads) {
      for (const int64_t width : kWidths) {
        body(DecodeShape{.n_tokens = 0, .n_heads = heads, .table_width = width, .bits = bits});
      }
    }
  }
}

TEST(DecodePlan, AllBlocksFitTheDeviceAtOnceAndTakeAllHeads) {
  for_each_shape([](DecodeShape shape) {
    for (shape.n_tokens = 1; shape.n_tokens <= 8192; shape.n_tokens *= 2) {
      const DecodePlan plan = plan_decode(shape, kSms);
      ASSERT_EQ(plan.n_head_groups, div_up(shape.n_heads, int64_t{kHeadTile}));
      ASSERT_GE(plan.n_shares, 1);
      ASSERT_LE(plan.n_shares * plan.n_head_groups, kSms);
      ASSERT_GE(plan.launch_tokens, 1);
    }
  });
}

TEST(DecodePlan, ATokenHasNoMorePartsThanAreAddedUp) {
  for_each_shape([](DecodeShape shape) {
    shape.n_tokens = 64;
    const DecodePlan plan = plan_decode(shape, kSms);
    const int64_t parts = plan.cut == Cut::fixed
                              ? div_up(shape.table_width, int64_t{1} << plan.chunk_log2)
                              : plan.n_shares;
    ASSERT_LE(parts, kPartsMax);
  });
}

// Where a token is cut may then follow from nothing but the table's width, which a server chooses
// once.
TEST(DecodePlan, BatchesAreCutAlikeWhereBitsMustNotDiffer) {
  for_each_shape([](DecodeShape shape) {
    if (shape.bits == BatchBits::may_differ) return;
    shape.n_tokens = 1;
    const DecodePlan one = plan_decode(shape, kSms);
    for (shape.n_tokens = 2; shape.n_tokens <= 8192; shape.n_tokens *= 2) {
      const DecodePlan plan = plan_decode(shape, kSms);
      ASSERT_EQ(plan.cut, Cut::fixed);
      ASSERT_EQ(plan.chunk_log2, one.chunk_log2);
      ASSERT_EQ(plan.launch_tokens, one.launch_tokens);
    }
  });
}

// The largest step decides the workspace; a smaller one must not make it grow.
TEST(DecodePlan, FewerTokensClaimNoMore) {
  for_each_shape([](DecodeShape shape) {
    int64_t claimed = 0;
    for (shape.n_tokens = 1; shape.n_tokens <= 8192; shape.n_tokens += 61) {
      const int64_t parts = plan_decode(shape, kSms).parts;
      ASSERT_GE(parts, claimed);
      claimed = parts;
    }
  });
}

TEST(DecodePlan, ALaunchHoldsItsParts) {
  for_each_shape([](DecodeShape shape) {
    shape.n_tokens = 8192;
    const DecodePlan plan = plan_decode(shape, kSms);
    if (plan.cut == Cut::even) {
      ASSERT_EQ(plan.parts, 2 * plan.n_shares);
      return;
    }
    const int64_t chunks = div_up(shape.table_width, int64_t{1} << plan.chunk_log2);
    ASSERT_GE(plan.parts, std::min(shape.n_tokens, plan.launch_tokens) * chunks);
  });
}

}  // namespace

}  // namespace quire::cuda
