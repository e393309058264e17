#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/launch.cuh"
#include "cuda/moe/expert_prefill.h"
#include "cuda/moe/packed_step.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kWarpTiles = 2;                                    // of 16 rows
constexpr int kBlockGroups = kWarps * kWarpTiles / kGroupTiles;  // 256 rows
static_assert(kBlockGroups * kGroupTiles * kTileRows == kPrefillBlockRows);
constexpr int kColumns = kTileTokens / 8;
constexpr int kStageInputs = 128;
constexpr int kStages = 4;
constexpr int kStageBytes = kTileTokens * kStageInputs * 2;
// A warp's outputs on their way out: [64 tokens][32 rows], padded against bank conflicts.
constexpr int kOutStride = kWarpTiles * kTileRows + 8;
constexpr int kOutBytes = kWarps * kTileTokens * kOutStride * 2;
constexpr int kSharedBytes = kStages * kStageBytes + kOutBytes;

enum class Product { gate_up, down };

// The tokens of a unit and its matrix.
struct Tile {
  const ExpertSide& side;
  const std::byte* weights;
  const int32_t* pairs;  // null of the shared expert
  int first;             // of the pairs, or of the tokens
  int n_rows;
};

__device__ Tile tile_of(const PrefillParams& p, int index, int n_shared) {
  if (index < n_shared) {
    const int first = index * kTileTokens;
    return {p.shared, p.shared.weights.data, nullptr, first, min(p.n_tokens - first, kTileTokens)};
  }
  const TokenTile tile = p.lists.tiles[index - n_shared];
  const int begin = p.lists.begin[tile.expert] + tile.first;
  return {p.routed, p.routed.weights.data + tile.expert * p.routed.weights.expert_bytes,
          p.lists.pairs + begin, 0, min(p.lists.begin[tile.expert + 1] - begin, kTileTokens)};
}

// Rows of the inputs and of the outputs of a tile's tokens.
struct TileRows {
  int input[kTileTokens];  // -1 for none
  int output[kTileTokens];
};

// Stage `stage` of the inputs: [64 tokens][128 inputs]; the 16-byte pieces of odd tokens have their
// halves of 128 bytes swapped in fours, so that a warp reads two tokens without bank conflicts.
__device__ void fetch_stage(const ExpertInput& input, const TileRows& rows, int stage,
                            std::byte* shared) {
  constexpr int kPieces = kStageInputs / 8;
#pragma unroll
  for (int i = 0; i < kTileTokens * kPieces / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int token = at / kPieces;
    const int piece = at % kPieces;
    const int k = stage * kStageInputs + piece * 8;
    const int row = rows.input[token];
    const bool is_there = row >= 0 && k < input.n_in;
    const Bf16* from = input.rows + (is_there ? row * input.stride + k : 0);
    std::byte* to = shared + token * kStageInputs * 2 + (piece ^ (token % 2 * 4)) * 16;
    copy_async_16(shared_address(to), from, is_there ? 16 : 0);
  }
}

using Sums = TileSum[kWarpTiles][kColumns];

// acc += one step of two tiles times all tokens; `piece` is the step's first of the stage.
template <WeightFormat kFormat, int kPiece = 0>
__device__ void multiply_tile(const PackedStep<kFormat> (&weights)[kWarpTiles],
                              const std::byte* stage, int piece, int n_columns,
                              const float2* scales, Sums& acc) {
  if constexpr (kPiece < PackedStep<kFormat>::kPieces) {
    const auto first = weights[0].template piece<kPiece>();
    const auto second = weights[1].template piece<kPiece>();
    const int g = lane_of_thread() / 4;
    const int t = lane_of_thread() % 4;
    const std::byte* at =
        stage + g * kStageInputs * 2 + ((4 * (piece + kPiece) + t) ^ (g % 2 * 4)) * 16;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c < n_columns) {
        const uint4 x = *reinterpret_cast<const uint4*>(at + c * 8 * kStageInputs * 2);
        const float2 scale = scales == nullptr ? float2{1.0F, 1.0F} : scales[c];
        multiply_piece<kFormat>(first, x, scale, acc[0][c]);
        multiply_piece<kFormat>(second, x, scale, acc[1][c]);
      }
    }
    multiply_tile<kFormat, kPiece + 1>(weights, stage, piece, n_columns, scales, acc);
  }
}

// Writes a warp's sums: through shared memory, so that a token's outputs leave together.
template <Product kProduct>
__device__ void write_sums(const ExpertSide& side, const TileRows& rows, int n_rows, int first,
                           bf16* shared, const Sums& acc) {
  constexpr bool kIsGateUp = kProduct == Product::gate_up;
  constexpr int kOutputs = kWarpTiles * kTileRows / (kIsGateUp ? 2 : 1);
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  __syncwarp();
#pragma unroll
  for (int tile = 0; tile < kWarpTiles; ++tile) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        bf16* to = shared + (8 * c + 2 * t + i) * kOutStride;
        const float low = acc[tile][c][i];
        const float high = acc[tile][c][i + 2];
        if constexpr (kIsGateUp) {
          to[tile * 8 + g] = __float2bfloat16_rn(__fdividef(low, 1.0F + __expf(-low)) * high);
        } else {
          to[tile * kTileRows + g] = __float2bfloat16_rn(low);
          to[tile * kTileRows + g + 8] = __float2bfloat16_rn(high);
        }
      }
    }
  }
  __syncwarp();
  constexpr int kVectors = kOutputs / 8;  // of a token
  for (int i = lane_of_thread(); i < n_rows * kVectors; i += kWarpSize) {
    const int token = i / kVectors;
    const int output = first + i % kVectors * 8;
    if (output >= side.out_stride) continue;
    *reinterpret_cast<uint4*>(side.out + rows.output[token] * side.out_stride + output) =
        *reinterpret_cast<const uint4*>(shared + token * kOutStride + i % kVectors * 8);
  }
}

// Where a warp's two tiles of a block of rows begin.
template <WeightFormat kFormat>
__device__ const std::byte* warp_tiles(const Tile& tile, int block) {
  const int group = block * kBlockGroups + warp_of_thread() / 2;
  const int n_groups = tile.side.weights.n_groups;
  // Groups past the end read the last one, and write nothing.
  return tile.weights +
         (int64_t{min(group, n_groups - 1)} * tile.side.weights.n_steps * kGroupTiles +
          warp_of_thread() % 2 * kWarpTiles) *
             kStepBytes<kFormat>;
}

// Blocks of 256 rows [block, block + n_blocks) of a tile's matrix times its tokens. Stages of
// inputs go round for each block of rows: the pipeline does not drain between them.
template <Product kProduct, WeightFormat kFormat>
__device__ void run_tile(const PrefillParams& p, const Tile& tile, const TileRows& rows, int block,
                         int n_blocks, std::byte* shared) {
  using Step = PackedStep<kFormat>;
  constexpr int kSteps = kStageInputs / kStepInputs<kFormat>;  // of a stage
  const ExpertInput& input = tile.side.input;
  const int n_steps = tile.side.weights.n_steps;
  const int n_stages = (n_steps + kSteps - 1) / kSteps;
  const int total = n_stages * n_blocks;
  const int n_columns = (tile.n_rows + 7) / 8;
  const uint64_t policy = pass_once_policy();
  bf16* out = reinterpret_cast<bf16*>(shared + kStages * kStageBytes) +
              warp_of_thread() * kTileTokens * kOutStride;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < total) fetch_stage(input, rows, i % n_stages, shared + i * kStageBytes);
    commit_copies();
  }
  const std::byte* at = warp_tiles<kFormat>(tile, p.first_block + block);
  Step ahead[kWarpTiles];
  const auto load_step = [&] {
#pragma unroll
    for (int i = 0; i < kWarpTiles; ++i)
      ahead[i] = Step::load(at + i * kStepBytes<kFormat>, policy);
  };
  load_step();
  Sums acc = {};
  int stage = 0;
  for (int i = 0; i < total; ++i) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int next = i + kStages - 1;
    if (next < total) {
      fetch_stage(input, rows, next % n_stages, shared + next % kStages * kStageBytes);
    }
    commit_copies();
    const std::byte* x = shared + i % kStages * kStageBytes;
    float2 scales[kColumns];
    if (kFormat == WeightFormat::fp8_block128 && input.scales != nullptr) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int token = 8 * c + 2 * (lane_of_thread() % 4);
        const auto scale_of = [&](int row) {
          return row < 0 ? 0.0F : input.scales[row * input.scale_stride + stage];
        };
        scales[c] = {scale_of(rows.input[token]), scale_of(rows.input[token + 1])};
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = stage * kSteps + s;
      if (step >= n_steps) break;
      Step weights[kWarpTiles];
#pragma unroll
      for (int w = 0; w < kWarpTiles; ++w) weights[w] = ahead[w];
      if (step + 1 < n_steps) {
        at += kGroupTiles * kStepBytes<kFormat>;
        load_step();
      } else if (i + 1 < total) {
        at = warp_tiles<kFormat>(tile, p.first_block + block + 1);
        load_step();
      }
      const bool is_scaled = kFormat == WeightFormat::fp8_block128 && input.scales != nullptr;
      multiply_tile<kFormat>(weights, x, s * Step::kPieces, n_columns, is_scaled ? scales : nullptr,
                             acc);
    }
    if (++stage < n_stages) continue;
    constexpr int kOutputs = kWarpTiles * kTileRows / (kProduct == Product::gate_up ? 2 : 1);
    write_sums<kProduct>(tile.side, rows, tile.n_rows,
                         (block * kWarps + warp_of_thread()) * kOutputs, out, acc);
    for (auto& columns : acc) {
      for (TileSum& sum : columns) {
        for (float& value : sum) value = 0;
      }
    }
    stage = 0;
    ++block;
  }
  wait_for_copies<0>();
}

// A unit is 64 tokens of an expert times `unit_blocks` blocks of 256 rows; units of one tile of
// tokens are neighbours, then those of one expert. Grid one block a multiprocessor, 256 threads,
// 104 KiB of shared memory: four stages of 64 x 128 inputs, and outputs on their way out. A warp
// multiplies 32 rows by all 64 tokens, weights from global memory. 2 x 64 operations a weight byte
// and more: bound by the tensor cores' mma.sync rate.
template <Product kProduct>
__global__ __launch_bounds__(kThreads, 1) void tiles_kernel(const __grid_constant__ PrefillParams p,
                                                            int unit_blocks) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ TileRows rows;
  wait_for_earlier_kernels();
  const auto blocks_of = [&](const ExpertSide& side) {
    if (side.weights.data == nullptr) return 0;
    if (kProduct == Product::down) return p.n_blocks;
    return (side.weights.n_groups + kBlockGroups - 1) / kBlockGroups;
  };
  const int shared_tiles =
      p.shared.weights.data == nullptr ? 0 : (p.n_tokens + kTileTokens - 1) / kTileTokens;
  const int shared_units = (blocks_of(p.shared) + unit_blocks - 1) / unit_blocks;
  const int routed_units = (blocks_of(p.routed) + unit_blocks - 1) / unit_blocks;
  const int n_shared = shared_tiles * shared_units;
  const int n_units = n_shared + p.lists.counts->n_tiles * routed_units;
  for (int unit = static_cast<int>(blockIdx.x); unit < n_units;
       unit += static_cast<int>(gridDim.x)) {
    const bool is_shared = unit < n_shared;
    const int index =
        is_shared ? unit / shared_units : shared_tiles + (unit - n_shared) / routed_units;
    const int part = is_shared ? unit % shared_units : (unit - n_shared) % routed_units;
    const Tile tile = tile_of(p, index, shared_tiles);
    const int block = part * unit_blocks;
    const int n_blocks = min(unit_blocks, blocks_of(tile.side) - block);
    __syncthreads();  // the rows of the unit before were read
    if (threadIdx.x < kTileTokens) {
      const int i = static_cast<int>(threadIdx.x);
      const int row = tile.pairs == nullptr ? tile.first + i : i < tile.n_rows ? tile.pairs[i] : 0;
      const int divisor = kProduct == Product::gate_up && tile.pairs != nullptr ? p.top_k : 1;
      rows.input[i] = i < tile.n_rows ? row / divisor : -1;
      rows.output[i] = row;
    }
    __syncthreads();
    switch (tile.side.weights.format) {
      case WeightFormat::bf16:
        run_tile<kProduct, WeightFormat::bf16>(p, tile, rows, block, n_blocks, shared);
        break;
      case WeightFormat::fp8_block128:
        run_tile<kProduct, WeightFormat::fp8_block128>(p, tile, rows, block, n_blocks, shared);
        break;
      case WeightFormat::int4_group:
        run_tile<kProduct, WeightFormat::int4_group>(p, tile, rows, block, n_blocks, shared);
        break;
    }
  }
}

template <Product kProduct>
void launch_tiles(const Context& context, const PrefillParams& params, int unit_blocks) {
  CUDA_MUST(cudaFuncSetAttribute(tiles_kernel<kProduct>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(context.n_sms)),
                          .threads = kThreads,
                          .shared_bytes = kSharedBytes};
  launch(context.stream, shape, tiles_kernel<kProduct>, params, unit_blocks);
}

}  // namespace

void launch_gate_up_tiles(const Context& context, const PrefillParams& params) {
  launch_tiles<Product::gate_up>(context, params, 2);
}

void launch_down_tiles(const Context& context, const PrefillParams& params) {
  launch_tiles<Product::down>(context, params, 4);
}

}  // namespace quire::cuda
