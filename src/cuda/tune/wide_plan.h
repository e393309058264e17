// How a wide product (cuda/gemm/wide.h) is cut: tokens of a tile, and blocks that share a sum. Pure
// functions of the shape: no device is asked.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr int kWideRows = 128;     // outputs of a tile
inline constexpr int kWideSplitsMax = 8;  // blocks of a cluster: what every such device can hold

struct WideShape {
  int64_t n_row_tiles;  // of both matrices
  int64_t n_chunks;     // of a sum: what a block takes of it at a time
  int64_t n_tokens;
};

struct WidePlan {
  int tokens;  // of a tile: 32, 64 or 128
  int splits;  // blocks of a cluster, each with a share of the sum that is not empty
};

// Blocks of these tiles that a multiprocessor holds.
constexpr int wide_blocks_of_sm(int tokens) { return tokens <= 64 ? 2 : 1; }

// BF16 weights, more tokens than a thin product takes: whether a step is faster with the wide
// kernel than with cuBLASLt's, which cannot begin beside the kernel ahead of it
// (docs/kernels/products.md).
bool wide_beats_blas(int64_t n_tokens, int64_t n_out, int64_t n_in);

// The fastest for the number of tokens.
WidePlan wide_plan(const WideShape& shape, int n_sms);
// The same for every number of tokens.
WidePlan wide_plan_any(const WideShape& shape, int n_sms);

}  // namespace quire::cuda
