#include "cuda/tune/thin_plan.h"

#include "base/bytes.h"

namespace quire::cuda {

int64_t thin_tokens_max(WeightFormat format, int64_t n_out, int64_t n_in) {
  constexpr int64_t kMost = 16;
  constexpr int64_t kFewWeights = int64_t{3} << 20;  // a router, or the second map of a query
  return format == WeightFormat::bf16 && n_out * n_in <= kFewWeights ? kThinTokensMax : kMost;
}

int thin_splits(const ThinShape& shape, int n_sms) {
  // What a block does before and after its loop counts as two turns more.
  constexpr int64_t kFixedTurns = 2;
  const auto turns = [&](int splits) {
    const int64_t loop = div_up(div_up(shape.n_chunks, int64_t{splits}), shape.n_warps);
    return div_up(shape.n_row_tiles * splits, int64_t{n_sms}) * (loop + kFixedTurns);
  };
  int best = 1;
  for (int splits = 2; splits <= kThinSplitsMax; ++splits) {
    if (turns(splits) < turns(best)) best = splits;
  }
  return best;
}

}  // namespace quire::cuda
