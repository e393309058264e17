#include "cuda/tune/wide_plan.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

// Clusters that are on the device at once. A cluster stays within one of the groups of
// multiprocessors that the device is made of, of at least 16 on Hopper.
int64_t clusters_at_once(int splits, int blocks_of_sm, int n_sms) {
  constexpr int kGroupSms = 16;
  if (splits == 1 || n_sms < kGroupSms) return std::max(1, n_sms * blocks_of_sm / splits);
  return int64_t{n_sms / kGroupSms} * (kGroupSms * blocks_of_sm / splits);
}

// Time in halves of a chunk's: what a block does before and after its chunks takes about as long as
// two of them, and longer the more blocks add up (docs/kernels/products.md).
int64_t time_of(const WideShape& shape, int tokens, int splits, int n_sms) {
  constexpr int64_t kFixed = 4;
  const int64_t tiles = shape.n_row_tiles * div_up(shape.n_tokens, int64_t{tokens});
  const int64_t waves = div_up(tiles, clusters_at_once(splits, wide_blocks_of_sm(tokens), n_sms));
  return waves * (2 * div_up(shape.n_chunks, int64_t{splits}) + kFixed + splits);
}

int splits_of(const WideShape& shape, int tokens, int n_sms) {
  int best = 1;
  for (int splits = 2; splits <= std::min<int64_t>(kWideSplitsMax, shape.n_chunks); ++splits) {
    if (time_of(shape, tokens, splits, n_sms) < time_of(shape, tokens, best, n_sms)) best = splits;
  }
  return best;
}

}  // namespace

bool wide_beats_blas(int64_t n_tokens, int64_t n_out, int64_t n_in) {
  constexpr int64_t kTokensMax = 64;
  constexpr int64_t kWeightsMax = int64_t{1} << 24;  // more of them hide what comes before
  // Few outputs leave multiprocessors idle. From here on experts have rings, and no need of the
  // first-level cache that such a product takes away from them.
  constexpr int64_t kFewOutputs = 4 * kWideRows;
  constexpr int64_t kRingTokens = 33;
  if (n_tokens > kTokensMax || n_out * n_in > kWeightsMax) return false;
  return n_out > kFewOutputs || n_tokens >= kRingTokens;
}

WidePlan wide_plan(const WideShape& shape, int n_sms) {
  const int tokens = shape.n_tokens <= 32 ? 32 : shape.n_tokens <= 64 ? 64 : 128;
  return {.tokens = tokens, .splits = splits_of(shape, tokens, n_sms)};
}

WidePlan wide_plan_any(const WideShape& shape, int n_sms) {
  constexpr int kTokens = 64;
  const WideShape one_tile{
      .n_row_tiles = shape.n_row_tiles, .n_chunks = shape.n_chunks, .n_tokens = kTokens};
  return {.tokens = kTokens, .splits = splits_of(one_tile, kTokens, n_sms)};
}

}  // namespace quire::cuda
