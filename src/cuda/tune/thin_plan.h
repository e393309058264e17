// How a thin product (cuda/gemm/thin.h) is cut: blocks that share a sum, and what of a
// multiprocessor they have. Pure functions of the shape: no device is asked.
#pragma once

#include <cstdint>

#include "ops/weight_matrix.h"

namespace quire::cuda {

inline constexpr int kThinRows = 32;      // outputs of a tile
inline constexpr int kThinSplitsMax = 8;  // blocks of a cluster: what every such device can hold
inline constexpr int64_t kThinTokensMax = 24;  // of any product

// Of both matrices: up to how many tokens the thin kernel is the faster one in a step
// (docs/kernels/products.md).
int64_t thin_tokens_max(WeightFormat format, int64_t n_out, int64_t n_in);

struct ThinShape {
  WeightFormat format;
  int64_t n_tokens;
  int64_t n_in;
  int64_t n_row_tiles;  // of both matrices
  int64_t n_chunks;     // of a sum: what a warp takes of it at a time
  int64_t n_warps;      // of a block, which share out the chunks
};

// What a block's ring of weights has of a multiprocessor's shared memory, and so many chunks of a
// warp it has under way (BF16, up to 8 tokens).
enum class ThinRing { half, two_thirds };
inline constexpr int64_t kThinHalfTurns = 4;
inline constexpr int64_t kThinTwoThirdsTurns = 6;

struct ThinPlan {
  int splits;     // blocks of a cluster
  ThinRing ring;  // not half: of BF16 weights and at most 8 tokens
  bool is_alone;  // on its multiprocessor, but for blocks of other kernels
};

ThinPlan thin_plan(const ThinShape& shape, int n_sms);

}  // namespace quire::cuda
