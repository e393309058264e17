// Where a block of a product stands, and how its sums come together: for the thin and the wide
// kernel.
#pragma once

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/thin.h"
#include "cuda/gemm/thin_tile.cuh"
#include "cuda/ptx/cluster.cuh"

namespace quire::cuda {

struct ThinParams {
  ThinProduct product;
  int32_t tiles_of_first;  // row tiles of the first side
};

// Where a block stands: one tile of rows of one side, one tile of tokens, chunks of k.
struct ThinPlace {
  int64_t first_row, first_token;
  int32_t side;
  int32_t chunk_begin, chunk_end;
  int32_t n_whole;  // chunks of a row that are not cut short by its end
};

template <class Tile>
__device__ ThinPlace place_of(const ThinParams& params) {
  const auto tile = static_cast<int32_t>(blockIdx.y);
  const int32_t side = tile < params.tiles_of_first ? 0 : 1;
  const int32_t tile_of_side = tile - (side == 0 ? 0 : params.tiles_of_first);
  const auto n_chunks =
      static_cast<int32_t>((params.product.n_in + Tile::kInputs - 1) / Tile::kInputs);
  const auto rank = static_cast<int32_t>(blockIdx.x);
  const auto n_blocks = static_cast<int32_t>(gridDim.x);
  return {.first_row = int64_t{tile_of_side} * Tile::kRows,
          .first_token = int64_t{blockIdx.z} * Tile::kTokens,
          .side = side,
          .chunk_begin = n_chunks * rank / n_blocks,
          .chunk_end = n_chunks * (rank + 1) / n_blocks,
          .n_whole = static_cast<int32_t>(params.product.n_in / Tile::kInputs)};
}

// Of the 16 bytes that a lane is about to copy, those that the row still has.
__device__ inline int bytes_left(int64_t left) {
  return static_cast<int>(min(max(left, int64_t{0}), int64_t{16}));
}

// Rows of a tile that a block of the cluster adds up and writes: neighbours, as equal shares as
// there are.
template <class Tile>
struct ThinShare {
  int n_blocks;
  int pitch;  // of the largest share

  __device__ int owner(int row) const { return row * n_blocks / Tile::kRows; }
  __device__ int begin(int block) const { return (block * Tile::kRows + n_blocks - 1) / n_blocks; }
};

// Adds up what the warps have, in their order; sends it to the blocks of the cluster that write
// these rows, and writes the own ones: sums over the blocks, in their order. `staging` may be the
// ring: nobody copies into it any more.
template <class Tile>
__device__ void finish(const ThinProduct& p, const ThinSide& side, const ThinPlace& place,
                       float* staging, float* partial, const ThinSums<Tile>& acc) {
  constexpr int kGroupValues = Tile::kTokens * Tile::kStagingPitch;
  const auto n_blocks = static_cast<int>(cluster_blocks());
  const int block = static_cast<int>(cluster_rank());
  const ThinShare<Tile> share{n_blocks, (Tile::kRows + n_blocks - 1) / n_blocks};
  const auto n_tokens =
      static_cast<int>(min(p.n_tokens - place.first_token, int64_t{Tile::kTokens}));
  const int lane = lane_of_thread();
  __syncthreads();  // the ring was read
  // [groups][tokens][rows]
  float* own =
      staging + Tile::input_group() * kGroupValues + 16 * Tile::kRowTiles * Tile::row_group();
#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = 8 * j + 2 * (lane % 4) + i % 2;
        own[token * Tile::kStagingPitch + 16 * m + lane / 4 + (i < 2 ? 0 : 8)] = acc[m][j][i];
      }
    }
  }
  __syncthreads();
  const auto write = [&](int token, int row_of_tile, float sum) {
    const int64_t row = place.first_row + row_of_tile;
    if (row >= side.n_out) return;
    const int64_t to = (place.first_token + token) * side.out_stride + row;
    if (side.out != nullptr) {
      reinterpret_cast<bf16*>(side.out)[to] = __float2bfloat16_rn(sum);
    } else {
      side.out_f32[to] = sum;
    }
  };
  wait_for_cluster();  // all of its blocks have begun
  for (int i = static_cast<int>(threadIdx.x); i < n_tokens * Tile::kRows; i += Tile::kThreads) {
    const int token = i / Tile::kRows;
    const int row = i % Tile::kRows;
    const float* from = staging + token * Tile::kStagingPitch + row;
    float sum = from[0];
    for (int group = 1; group < Tile::kInputGroups; ++group) sum += from[group * kGroupValues];
    if (n_blocks == 1) {
      write(token, row, sum);
      continue;
    }
    const int owner = share.owner(row);
    // [blocks][tokens][pitch]
    in_block(partial,
             static_cast<uint32_t>(
                 owner))[(block * Tile::kTokens + token) * share.pitch + row - share.begin(owner)] =
        sum;
  }
  if (n_blocks == 1) return;
  arrive_at_cluster();
  wait_for_cluster();
  const int first_row = share.begin(block);
  const int n_rows = share.begin(block + 1) - first_row;
  for (int i = static_cast<int>(threadIdx.x); i < n_tokens * share.pitch; i += Tile::kThreads) {
    const int token = i / share.pitch;
    const int in_share = i - token * share.pitch;
    if (in_share >= n_rows) continue;
    float sum = partial[i];
    for (int other = 1; other < n_blocks; ++other) {
      sum += partial[other * Tile::kTokens * share.pitch + i];
    }
    write(token, first_row + in_share, sum);
  }
}

}  // namespace quire::cuda
