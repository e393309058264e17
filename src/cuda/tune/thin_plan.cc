#include "cuda/tune/thin_plan.h"

#include "base/bytes.h"

namespace quire::cuda {

int64_t thin_tokens_max(WeightFormat format, int64_t n_out, int64_t n_in) {
  constexpr int64_t kMost = 16;
  constexpr int64_t kFewWeights = int64_t{3} << 20;  // a router, or the second map of a query
  return format == WeightFormat::bf16 && n_out * n_in <= kFewWeights ? kThinTokensMax : kMost;
}

namespace {

// Chunks of a warp.
int64_t turns_of(const ThinShape& shape, int splits) {
  return div_up(div_up(shape.n_chunks, int64_t{splits}), shape.n_warps);
}

// Those that leave the busiest multiprocessor with the fewest turns.
int splits_of(const ThinShape& shape, int n_sms) {
  // What a block does before and after its loop counts as two turns more.
  constexpr int64_t kFixedTurns = 2;
  const auto turns = [&](int splits) {
    return div_up(shape.n_row_tiles * splits, int64_t{n_sms}) *
           (turns_of(shape, splits) + kFixedTurns);
  };
  int best = 1;
  for (int splits = 2; splits <= kThinSplitsMax; ++splits) {
    if (turns(splits) < turns(best)) best = splits;
  }
  return best;
}

// One token's experts leave room for half a multiprocessor beside them: their weights and these
// arrive together.
bool may_have_two_thirds(const ThinShape& shape, int n_sms) {
  return shape.format == WeightFormat::bf16 && shape.n_tokens >= 2 && shape.n_tokens <= 8 &&
         shape.n_row_tiles <= n_sms;
}

}  // namespace

ThinPlan thin_plan(const ThinShape& shape, int n_sms) {
  // Behind a norm, which leaves nearly all multiprocessors free at once, blocks would pile up on
  // some; others begin where the product ahead of them makes room.
  constexpr int64_t kHiddenMin = 4096;
  ThinPlan plan{.splits = splits_of(shape, n_sms), .ring = ThinRing::half, .is_alone = false};
  if (may_have_two_thirds(shape, n_sms)) {
    // All of a sum under way in one block needs no cluster.
    if (turns_of(shape, 1) <= kThinTwoThirdsTurns) plan.splits = 1;
    if (turns_of(shape, plan.splits) > kThinHalfTurns) plan.ring = ThinRing::two_thirds;
  }
  plan.is_alone = shape.n_in >= kHiddenMin && shape.n_row_tiles * plan.splits <= n_sms;
  return plan;
}

}  // namespace quire::cuda
