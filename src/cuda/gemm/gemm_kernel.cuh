// The one product kernel, for every weight format and two tile shapes. Included by the file that
// instantiates each format: gemm_bf16.cu, gemm_fp8.cu, gemm_int4.cu.
//
// Plain on purpose: fragments come straight from global memory (a lane reads eight neighbouring
// weights), without staging in shared memory; the next issue's kernels replace it.
#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/gemm_weights.cuh"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

// Outputs are the rows of the tensor-core tile, tokens its columns.
template <int kColumnTiles_, int kSlices_, int kWarps_>
struct GemmTile {
  static constexpr int kColumnTiles = kColumnTiles_;  // of 8 tokens
  static constexpr int kTokens = 8 * kColumnTiles_;
  static constexpr int kSlices = kSlices_;  // warps that share the sum over k
  static constexpr int kWarps = kWarps_;
  static constexpr int kThreads = kWarps_ * kWarpSize;
  static constexpr int kOutputs = 16 * kWarps_ / kSlices_;
};

// Few tokens: many small blocks, the sum over k split among the warps of each.
using SkinnyTile = GemmTile<2, 8, 8>;
// More tokens than that, and too few outputs to fill the device with wide tiles.
using MediumTile = GemmTile<8, 4, 4>;
// Many tokens.
using WideTile = GemmTile<8, 1, 4>;

// Where a lane stands in the block's tile, and what it reads.
struct GemmLane {
  int g, t;               // row of A and column of B; pair of columns of D
  int64_t output;         // first output row of the warp
  const std::byte* low;   // weights of row output + g
  const std::byte* high;  // of row output + g + 8
};

// acc += scale * part, part = 0.
template <class Tile>
__device__ void fold(float (&acc)[Tile::kColumnTiles][4], float (&part)[Tile::kColumnTiles][4],
                     float low, float high) {
  for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      acc[tile][i] = fmaf(i < 2 ? low : high, part[tile][i], acc[tile][i]);
      part[tile][i] = 0;
    }
  }
}

// Work of a block: outputs [16 * warps / slices] of one group, every n_slots-th tile of its tokens.
// Grid (output tiles, groups, sides * slots), 128 or 256 threads, 8 or 16 KiB of shared memory when
// the sum is split. Moves the weights once for each tile of 16 or 64 tokens: bound by the latency
// of loads (each behind a branch, few under way; read off the code, not profiled). H200,
// 2026-11-29, 2112 x 7168 at 1 / 64 / 2,048 tokens: FP8 34 / 178 / 4,070 us, INT4 25 / 150 / 3,986
// us.
template <WeightFormat kFormat, class Tile>
__global__ __launch_bounds__(Tile::kThreads) void gemm_kernel(
    const __grid_constant__ GemmParams p) {
  __shared__ float shared[Tile::kSlices > 1 ? Tile::kSlices : 1][16][Tile::kTokens];
  const GemmSide& side = p.sides[blockIdx.z % p.n_sides];
  const int64_t slot = blockIdx.z / p.n_sides;
  const int64_t n_slots = gridDim.z / p.n_sides;
  const int64_t group = blockIdx.y;
  const int64_t begin = p.group_begin != nullptr ? p.group_begin[group] : 0;
  const int64_t end = p.group_begin != nullptr ? p.group_begin[group + 1] : p.n_rows;
  if (begin >= end) return;
  const WeightRef weight = side.table != nullptr ? side.table[group] : side.weight;
  const int slice = warp_of_thread() % Tile::kSlices;
  GemmLane lane{.g = lane_of_thread() / 4, .t = lane_of_thread() % 4};
  lane.output = int64_t{blockIdx.x} * Tile::kOutputs + 16 * (warp_of_thread() / Tile::kSlices);
  // Rows past the end read the last one, and are not written.
  const int64_t low_row = min(lane.output + lane.g, p.n_out - 1);
  const int64_t high_row = min(lane.output + lane.g + 8, p.n_out - 1);
  lane.low = static_cast<const std::byte*>(weight.values) + low_row * weight.value_stride;
  lane.high = static_cast<const std::byte*>(weight.values) + high_row * weight.value_stride;
  const int64_t n_blocks = (p.n_in + kFp8Block - 1) / kFp8Block;  // of k
  const int64_t block_begin = n_blocks * slice / Tile::kSlices;
  const int64_t block_end = n_blocks * (slice + 1) / Tile::kSlices;

  for (int64_t first = begin + slot * Tile::kTokens; first < end;
       first += n_slots * Tile::kTokens) {
    const bf16* x[Tile::kColumnTiles];
    const float* x_scale[Tile::kColumnTiles][2];
    for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
      const auto source = [&](int64_t row) -> int64_t {
        const int64_t r = min(row, end - 1);
        return p.x_index != nullptr ? p.x_index[r] / p.x_divisor : r;
      };
      const int64_t row = first + 8 * tile + lane.g;
      x[tile] = row < end ? reinterpret_cast<const bf16*>(p.x) + source(row) * p.x_stride : nullptr;
      for (int i = 0; i < 2; ++i) {
        const int64_t column = first + 8 * tile + 2 * lane.t + i;
        x_scale[tile][i] =
            p.x_scale != nullptr ? p.x_scale + source(column) * p.x_scale_stride : nullptr;
      }
    }
    float acc[Tile::kColumnTiles][4] = {};
    float part[Tile::kColumnTiles][4] = {};
    for (int64_t block = block_begin; block < block_end; ++block) {
#pragma unroll
      for (int chunk = 0; chunk < kFp8Block / kChunk; ++chunk) {
        const int64_t chunk_k = block * kFp8Block + chunk * kChunk;
        if (chunk_k >= p.n_in) break;
        const int64_t k = chunk_k + kLaneValues * lane.t;
        const bool is_whole = p.is_aligned && k + kLaneValues <= p.n_in;
        const Eight low = load_weights<kFormat>(lane.low, k, p.n_in, is_whole);
        const Eight high = load_weights<kFormat>(lane.high, k, p.n_in, is_whole);
        const MmaA first_half{low.pair[0], high.pair[0], low.pair[1], high.pair[1]};
        const MmaA second_half{low.pair[2], high.pair[2], low.pair[3], high.pair[3]};
#pragma unroll
        for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
          Eight b{};
          if (x[tile] != nullptr) b = load_bf16(x[tile], k, p.n_in, is_whole);
          mma_bf16(part[tile], first_half, b.pair[0], b.pair[1]);
          mma_bf16(part[tile], second_half, b.pair[2], b.pair[3]);
        }
        if constexpr (kFormat == WeightFormat::int4_group) {
          const auto* scales = static_cast<const bf16*>(weight.scales) + chunk_k / p.group;
          fold<Tile>(acc, part, __bfloat162float(scales[low_row * weight.scale_stride]),
                     __bfloat162float(scales[high_row * weight.scale_stride]));
        }
      }
      if constexpr (kFormat == WeightFormat::fp8_block128) {
        // The 16 rows of a warp lie in one block of 128.
        const float scale = static_cast<const float*>(
            weight.scales)[min(lane.output, p.n_out - 1) / kFp8Block * weight.scale_stride + block];
        if (p.x_scale != nullptr) {
          for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
            for (int i = 0; i < 4; ++i) part[tile][i] *= x_scale[tile][i % 2][block];
          }
        }
        fold<Tile>(acc, part, scale, scale);
      }
    }
    if constexpr (kFormat == WeightFormat::bf16) fold<Tile>(acc, part, 1.0F, 1.0F);

    const auto write = [&](int64_t output, int64_t row, float sum) {
      if (output >= p.n_out || row >= end) return;
      const int64_t to = (p.out_index != nullptr ? p.out_index[row] : row) * side.out_stride;
      if (side.out != nullptr) {
        reinterpret_cast<bf16*>(side.out)[to + output] = __float2bfloat16_rn(sum);
      } else {
        side.out_f32[to + output] = sum;
      }
    };
    if constexpr (Tile::kSlices == 1) {
      for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
        for (int i = 0; i < 4; ++i) {
          write(lane.output + lane.g + (i < 2 ? 0 : 8), first + 8 * tile + 2 * lane.t + i % 2,
                acc[tile][i]);
        }
      }
    } else {
      __syncthreads();  // the last tile's sums were read
      for (int tile = 0; tile < Tile::kColumnTiles; ++tile) {
        for (int i = 0; i < 4; ++i) {
          shared[slice][lane.g + (i < 2 ? 0 : 8)][8 * tile + 2 * lane.t + i % 2] = acc[tile][i];
        }
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < 16 * Tile::kTokens; i += Tile::kThreads) {
        const int output = i % 16;
        const int column = i / 16;
        float sum = 0;
        for (int s = 0; s < Tile::kSlices; ++s) sum += shared[s][output][column];
        write(lane.output + output, first + column, sum);
      }
    }
  }
}

// Tiles of tokens that a group has on average, and blocks of a launch with one block for each.
template <class Tile>
int64_t slots_of(const GemmParams& p) {
  const int64_t tiles = div_up(p.n_rows, p.n_groups * Tile::kTokens);
  return std::clamp<int64_t>(tiles, 1, 16384);  // grid.z ends at 65,535
}
template <class Tile>
int64_t blocks_of(const GemmParams& p) {
  return div_up(p.n_out, Tile::kOutputs) * p.n_groups * p.n_sides * slots_of<Tile>(p);
}

template <WeightFormat kFormat, class Tile>
void launch_tile(const Context& context, const GemmParams& p) {
  const dim3 grid(static_cast<unsigned>(div_up(p.n_out, Tile::kOutputs)),
                  static_cast<unsigned>(p.n_groups),
                  static_cast<unsigned>(p.n_sides * slots_of<Tile>(p)));
  gemm_kernel<kFormat, Tile><<<grid, Tile::kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

template <WeightFormat kFormat>
void launch_format(const Context& context, const GemmParams& p) {
  // One tile for every count of rows makes a row's sums independent of its batch.
  if (context.deterministic || p.n_rows <= SkinnyTile::kTokens * p.n_groups) {
    launch_tile<kFormat, SkinnyTile>(context, p);
  } else if (blocks_of<WideTile>(p) < 2 * context.n_sms) {
    launch_tile<kFormat, MediumTile>(context, p);
  } else {
    launch_tile<kFormat, WideTile>(context, p);
  }
}

}  // namespace quire::cuda
