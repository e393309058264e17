// Where a block of a wide product stands, and how the sums of a cluster come together.
#pragma once

#include <cuda.h>

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/wide.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/tune/wide_plan.h"

namespace quire::cuda {

struct WideParams {
  CUtensorMap weights[2];  // of the sides
  CUtensorMap x;
  ThinProduct product;
  int32_t tiles_of_first;  // row tiles of the first side
};

// One tile of rows of one side, one tile of tokens, chunks of k.
struct WidePlace {
  int64_t first_row, first_token;
  int32_t side;
  int32_t chunk_begin, chunk_end;
};

template <class Tile>
__device__ WidePlace wide_place(const WideParams& params) {
  const auto n_blocks = static_cast<int32_t>(cluster_blocks());
  const auto rank = static_cast<int32_t>(cluster_rank());
  const int32_t tile = static_cast<int32_t>(blockIdx.x) / n_blocks;
  const int32_t side = tile < params.tiles_of_first ? 0 : 1;
  const auto n_chunks =
      static_cast<int32_t>((params.product.n_in + Tile::kInputs - 1) / Tile::kInputs);
  return {.first_row = int64_t{tile - (side == 0 ? 0 : params.tiles_of_first)} * Tile::kRows,
          .first_token = int64_t{blockIdx.y} * Tile::kTokens,
          .side = side,
          .chunk_begin = n_chunks * rank / n_blocks,
          .chunk_end = n_chunks * (rank + 1) / n_blocks};
}

// Four neighbouring outputs of a token, or as many as there are.
__device__ inline void write_four(const ThinSide& side, int64_t at, int64_t n, const float4& sum) {
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
  if (side.out != nullptr) {
    bf16* to = reinterpret_cast<bf16*>(side.out) + at;
    if (n >= 4 && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<uint2*>(to) = {bits_of(__floats2bfloat162_rn(sum.x, sum.y)),
                                       bits_of(__floats2bfloat162_rn(sum.z, sum.w))};
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < n) to[i] = __float2bfloat16_rn(values[i]);
    }
  } else {
    float* to = side.out_f32 + at;
    if (n >= 4 && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      *reinterpret_cast<float4*>(to) = sum;
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < n) to[i] = values[i];
    }
  }
}

// Puts what the block has into its shared memory, in the ring's place; then each block of the
// cluster adds up and writes a share of the tokens, the blocks' sums in their order.
template <class Tile>
__device__ void finish_wide(const ThinProduct& p, const WidePlace& place, float* sums,
                            const float (&acc)[Tile::kValues]) {
  const auto n_blocks = static_cast<int>(cluster_blocks());
  const int block = static_cast<int>(cluster_rank());
  const ThinSide& side = p.sides[place.side];
  const int lane = lane_of_thread();
  __syncthreads();  // the ring was read, and nothing is on its way to it
  if (warp_of_thread() < Tile::kConsumers) {
    float* own = sums + 16 * warp_of_thread() + lane / 4;
#pragma unroll
    for (int v = 0; v < Tile::kValues; ++v) {
      const int token = v / 4 * 8 + 2 * (lane % 4) + v % 2;
      own[token * Tile::kStagingPitch + v / 2 % 2 * 8] = acc[v];
    }
  }
  arrive_at_cluster();
  wait_for_cluster();
  wait_for_earlier_kernels();
  const auto n_tokens =
      static_cast<int>(min(p.n_tokens - place.first_token, int64_t{Tile::kTokens}));
  const int token_end = n_tokens * (block + 1) / n_blocks;
  const int64_t row = place.first_row + 4 * lane;
  for (int token = n_tokens * block / n_blocks + warp_of_thread(); token < token_end;
       token += Tile::kThreads / kWarpSize) {
    float* at = sums + token * Tile::kStagingPitch + 4 * lane;
    float4 parts[kWideSplitsMax];
#pragma unroll
    for (int i = 0; i < kWideSplitsMax; ++i) {
      if (i < n_blocks) {
        parts[i] = *reinterpret_cast<const float4*>(in_block(at, static_cast<uint32_t>(i)));
      }
    }
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < kWideSplitsMax; ++i) {
      if (i >= n_blocks) break;
      sum = {sum.x + parts[i].x, sum.y + parts[i].y, sum.z + parts[i].z, sum.w + parts[i].w};
    }
    const int64_t to = (place.first_token + token) * side.out_stride + row;
    write_four(side, to, side.n_out - row, sum);
  }
  if (n_blocks == 1) return;
  arrive_at_cluster_after_reads();  // nobody's memory goes away while others read it
  wait_for_cluster();
}

}  // namespace quire::cuda
