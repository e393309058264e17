#include "cuda/tune/few_experts_plan.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

constexpr int64_t kSharedBytesMax = int64_t{223} << 10;    // what a block may have, less the lists
constexpr int64_t kSharedBytesOfTwo = int64_t{222} << 10;  // what two blocks may have
constexpr int64_t kTileInner = 8;                          // inner values of a tile of gate and up
constexpr int64_t kTilesOfBlock = 16;  // what tiles of an expert are rounded up to

// Of the weights that all warps of a block have under way.
int64_t ring_bytes(const FewCut& cut) {
  return int64_t{cut.tiles} * cut.steps * kFewWarps * kFewStepBytes;
}

}  // namespace

int64_t few_row_pitch(int64_t n_in) { return round_up(n_in, kFewRowMultiple) + kFewRowPadding; }

FewExpertsPlan plan_few_experts(const FewExpertsShape& shape) {
  FewExpertsPlan plan{};
  const int64_t n_pairs = shape.n_tokens * shape.top_k;
  if (shape.bits == BatchBits::must_not || shape.n_tokens < 1 || shape.n_tokens > kFewTokensMax ||
      n_pairs > kFewPairsMax) {
    return plan;
  }
  constexpr int64_t kValueBytes = 2;
  const int64_t x_bytes = shape.n_tokens * few_row_pitch(shape.hidden) * kValueBytes;
  const int64_t sum_rows = n_pairs + kFewSharedParts * shape.n_tokens;
  const int64_t rows_bytes =
      (n_pairs * few_row_pitch(shape.inner) + shape.n_tokens * few_row_pitch(shape.shared_inner)) *
          kValueBytes +
      sum_rows * kFewSumPitch * int64_t{sizeof(float)};
  const int64_t beside_bytes =
      ring_bytes(kFewGateUpBeside) + x_bytes + ring_bytes(kFewDownBeside) + rows_bytes;
  plan.is_beside = shape.n_tokens == 1 && beside_bytes <= kSharedBytesOfTwo;
  plan.gate_up_shared_bytes =
      ring_bytes(plan.is_beside ? kFewGateUpBeside : kFewGateUpAlone) + x_bytes;
  plan.down_shared_bytes = ring_bytes(plan.is_beside ? kFewDownBeside : kFewDownAlone) + rows_bytes;
  if (shape.shared_tiles > 0) {
    // A part has a step for each warp, or it is the only one.
    plan.shared_parts = std::clamp<int64_t>(
        std::min(shape.n_sms / shape.shared_tiles, shape.shared_steps / kFewWarps), 1, 16);
  }
  const int64_t tiles = n_pairs * round_up(div_up(shape.inner, kTileInner), kTilesOfBlock);
  const int64_t counted = std::max(tiles, shape.shared_tiles * plan.shared_parts);
  plan.fits = std::max(plan.gate_up_shared_bytes, plan.down_shared_bytes) <= kSharedBytesMax &&
              counted * shape.n_sms < kFewCountMax;
  constexpr int64_t kRowsOfTile = 16;
  plan.shared_sums = plan.shared_parts * shape.n_tokens * shape.shared_tiles * kRowsOfTile;
  return plan;
}

}  // namespace quire::cuda
