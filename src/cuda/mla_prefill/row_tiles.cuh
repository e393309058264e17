// RowTiles: the tokens of a step cut into tiles of one row each, found on the device.
//
// A launch covers the most tiles that its shapes allow (tiles_max); blocks past the last tile find
// none and leave. No host reads where rows begin, so that the launch is the same for every step of
// its shapes.
#pragma once

#include <cstdint>

#include "cuda/common/reduce.cuh"

namespace quire::cuda {

struct InRow {
  int32_t row;  // -1: no row has it
  int32_t index;
};

// Rows own count_of(row) things each, numbered through all rows: whose is thing `index`, and which
// of that row's? By one whole warp; all lanes get the answer.
template <class CountOf>
__device__ inline InRow find_in_rows(int32_t n_rows, int32_t index, const CountOf& count_of) {
  const int lane = lane_of_thread();
  int32_t before = 0;  // things of the rows before `base`
  for (int32_t base = 0; base < n_rows; base += kWarpSize) {
    const int32_t row = base + lane;
    const int32_t count = row < n_rows ? count_of(row) : 0;
    int32_t through = count;  // of the rows from `base` through this one
    for (int step = 1; step < kWarpSize; step *= 2) {
      const int32_t other = __shfl_up_sync(kFullWarp, through, step);
      if (lane >= step) through += other;
    }
    const uint32_t owners = __ballot_sync(kFullWarp, index < before + through);
    if (owners != 0) {
      const int owner = __ffs(static_cast<int>(owners)) - 1;
      return {base + owner, __shfl_sync(kFullWarp, index - before - (through - count), owner)};
    }
    before += __shfl_sync(kFullWarp, through, kWarpSize - 1);
  }
  return {-1, 0};
}

struct Tile {
  int32_t row;          // -1: no such tile
  int32_t first_token;  // of the step
  int32_t n_tokens;
};

struct RowTiles {
  const int32_t* row_begin;  // [n_rows + 1]
  int32_t n_rows;
  int32_t tile_tokens;

  __device__ int32_t n_tokens(int32_t row) const { return row_begin[row + 1] - row_begin[row]; }
  __device__ int32_t n_tiles(int32_t row) const {
    return (n_tokens(row) + tile_tokens - 1) / tile_tokens;
  }
  // Tile `index`, in order of rows and tokens. By one whole warp; all lanes get it.
  __device__ Tile find(int32_t index) const {
    const InRow at = find_in_rows(n_rows, index, [&](int32_t row) { return n_tiles(row); });
    if (at.row < 0) return {-1, 0, 0};
    const int32_t first = at.index * tile_tokens;
    return {at.row, row_begin[at.row] + first, min(tile_tokens, n_tokens(at.row) - first)};
  }
};

// Every row adds at most one tile that is not full, and every tile holds a token.
inline int64_t tiles_max(int64_t n_tokens, int64_t n_rows, int64_t tile_tokens) {
  const int64_t full = n_tokens / tile_tokens;
  return full + (n_rows < n_tokens - full ? n_rows : n_tokens - full);
}

}  // namespace quire::cuda
