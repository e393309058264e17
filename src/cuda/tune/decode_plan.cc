#include "cuda/tune/decode_plan.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/check.h"

namespace quire::cuda {

namespace {

constexpr int64_t kTokensMax = 32768;  // the grid of the combination ends at 65,535
constexpr int kChunkLog2Min = 4;       // 16 pages: a part costs about what one page does
// Parts of a fixed cut in one launch: 128 MiB of sums. Few tokens come in one launch all the same.
constexpr int64_t kFixedParts = 8192;
constexpr int64_t kFixedTokensMin = 16;

int fixed_chunk_log2(int64_t table_width) {
  int log2 = kChunkLog2Min;
  while (div_up(table_width, int64_t{1} << log2) > kPartsMax) ++log2;
  return log2;
}

// Places of the line (mla_decode/split_plan.cuh) are 32-bit.
int64_t tokens_on_a_line(int64_t table_width) {
  constexpr int64_t kOverheadMax = 8;
  return std::numeric_limits<int32_t>::max() / (table_width + kOverheadMax);
}

}  // namespace

DecodePlan plan_decode(const DecodeShape& shape, int n_sms) {
  CHECK(n_sms <= kPartsMax && shape.n_heads <= int64_t{kHeadTile} * n_sms);
  DecodePlan plan{};
  plan.n_head_groups = static_cast<int>(div_up(shape.n_heads, int64_t{kHeadTile}));
  plan.n_shares = n_sms / std::max(plan.n_head_groups, 1);
  plan.launch_tokens = std::min(kTokensMax, tokens_on_a_line(shape.table_width));
  if (shape.bits == BatchBits::may_differ) {
    plan.cut = Cut::even;
    plan.overhead = 1;
    // A share has a token that began before it and one that goes on behind it; all others are
    // whole.
    plan.parts = int64_t{2} * plan.n_shares;
    return plan;
  }
  plan.cut = Cut::fixed;
  plan.chunk_log2 = fixed_chunk_log2(shape.table_width);
  const int64_t chunks =
      std::max(div_up(shape.table_width, int64_t{1} << plan.chunk_log2), int64_t{1});
  plan.launch_tokens = std::min(
      plan.launch_tokens, std::max(kFixedParts / (chunks * plan.n_head_groups), kFixedTokensMin));
  plan.parts = std::min(shape.n_tokens, plan.launch_tokens) * chunks;
  return plan;
}

}  // namespace quire::cuda
