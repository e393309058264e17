#include "cuda/tune/experts_plan.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

constexpr int64_t kTurnTokens = 64;
// Turns beat tiles up to here: a turn of 64 tokens in INT4 takes 0.29 ms, tiles take 0.8 ms for 256
// to 1,024 tokens (H200, docs/kernels/experts.md).
constexpr int64_t kTurnsTokens = 192;
// INT4 passes through shared memory from here on, where so many experts are met that bytes under
// way count for more than what the first-level cache keeps of their inputs
// (docs/kernels/experts.md).
constexpr int64_t kRingTokens = 33;
constexpr int64_t kPartialBytes = int64_t{256} << 20;  // of partial sums (bf16) at once
constexpr int64_t kUnitBlocks = 7;                     // four units of a tile of 7,168 outputs

// Tokens of a tile that waste least where every expert is as likely.
int choose_tile_tokens(double pairs_of_expert) {
  constexpr int kFixed = 16;  // what a tile costs beside its columns, in columns
  const double many = pairs_of_expert + std::sqrt(pairs_of_expert);
  int best = 0;
  double best_cost = 0;
  for (const int tokens : {32, 64, 96}) {
    const double cost = std::ceil(many / tokens) * (tokens + kFixed);
    if (best != 0 && cost >= best_cost) continue;
    best = tokens;
    best_cost = cost;
  }
  return best;
}

}  // namespace

ExpertsPlan plan_experts(const ExpertsShape& shape) {
  ExpertsPlan plan{};
  if (shape.bits == BatchBits::must_not || shape.n_tokens <= kTurnsTokens) {
    plan.turn_tokens = kTurnTokens;
    plan.by_ring = shape.bits == BatchBits::may_differ && shape.n_tokens >= kRingTokens &&
                   shape.format == WeightFormat::int4_group;
    return plan;
  }
  const int64_t n_pairs = shape.n_tokens * shape.top_k;
  plan.tile_tokens =
      choose_tile_tokens(static_cast<double>(n_pairs) / static_cast<double>(shape.n_experts));
  plan.n_blocks = div_up(shape.hidden, kPromptBlockRows);
  // A row each for the pairs and for the shared expert.
  const int64_t block_bytes = (n_pairs + shape.n_tokens) * kPromptBlockRows * 2;
  plan.blocks = std::clamp<int64_t>(kPartialBytes / block_bytes, 1, plan.n_blocks);
  plan.unit_blocks = std::min(plan.blocks, kUnitBlocks);
  // What more tokens in fewer blocks take, too: workspace is claimed for the largest step.
  plan.partial_bytes = std::max(block_bytes, std::min(block_bytes * plan.n_blocks, kPartialBytes));
  return plan;
}

}  // namespace quire::cuda
