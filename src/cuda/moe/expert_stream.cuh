// Streams of packed weights through a warp: what the decode kernels are made of.
//
// Loads of the next step are under way while one is multiplied. An element's sum is taken step by
// step whatever the number of tiles or tokens at once, so that it does not depend on them.
#pragma once

#include "cuda/moe/expert_side.h"
#include "cuda/moe/packed_step.cuh"

namespace quire::cuda {

// The tokens of a warp's tile: lane 4 g + t knows which row column 8 c + g is, -1 for none.
template <int kColumns>
struct TokenColumns {
  int row[kColumns];

  // Column i of n is row_of(first + i).
  template <class RowOf>
  __device__ TokenColumns(int first, int n, const RowOf& row_of) {
    const int g = lane_of_thread() / 4;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      row[c] = first + 8 * c + g < n ? row_of(first + 8 * c + g) : -1;
    }
  }
  // The row of column 8 c + 2 t + i, where a lane holds sums. For a whole warp.
  __device__ int row_of_sum(int c, int i) const {
    return __shfl_sync(kFullWarp, row[c], (2 * (lane_of_thread() % 4) + i) * 4);
  }
};

// Inputs [k, k + 8) of a row; zero past the end.
__device__ inline uint4 load_input(const ExpertInput& input, int row, int k) {
  if (row < 0 || k >= input.n_in) return {0, 0, 0, 0};
  return *reinterpret_cast<const uint4*>(input.rows + row * input.stride + k);
}

// What multiplies the sums of a lane's two tokens, for the block of 128 inputs around k.
__device__ inline float2 load_input_scales(const ExpertInput& input, int2 rows, int k) {
  float2 out{1.0F, 1.0F};
  if (input.scales == nullptr) return out;
  const float* at = input.scales + k / kFp8Block;
  if (rows.x >= 0) out.x = at[rows.x * input.scale_stride];
  if (rows.y >= 0) out.y = at[rows.y * input.scale_stride];
  return out;
}

// A step's inputs of eight tokens.
template <WeightFormat kFormat>
struct StepInput {
  uint4 x[PackedStep<kFormat>::kPieces];
  float2 scales;

  // `rows` are those of the lane's sums.
  __device__ __forceinline__ static StepInput load(const ExpertInput& input, int row, int2 rows,
                                                   int step) {
    StepInput out;
    const int k = step * kStepInputs<kFormat>;
#pragma unroll
    for (int piece = 0; piece < PackedStep<kFormat>::kPieces; ++piece) {
      out.x[piece] = load_input(input, row, k + 32 * piece + 8 * (lane_of_thread() % 4));
    }
    if constexpr (kFormat == WeightFormat::fp8_block128) {
      out.scales = load_input_scales(input, rows, k);
    }
    return out;
  }
};

inline constexpr uint32_t kMinus24 = 0xc1c0c1c0;  // twice, in bfloat16

// acc += a step of kTiles tiles times eight tokens.
template <int kTiles, int kPiece = 0>
__device__ __forceinline__ void multiply_step(const PackedStep<WeightFormat::int4_group>* weights,
                                              const StepInput<WeightFormat::int4_group>& input,
                                              TileSum* acc) {
  using Step = PackedStep<WeightFormat::int4_group>;
  if constexpr (kPiece < Step::kPieces) {
    // Biased weights are cheaper to make; what the bias adds is the same for all rows.
    constexpr MmaA kBias{kMinus24, kMinus24, kMinus24, kMinus24};
    const uint4& x = input.x[kPiece];
    TileSum bias = {0, 0, 0, 0};
    mma_bf16(bias, kBias, x.x, x.y);
    mma_bf16(bias, kBias, x.z, x.w);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      TileSum part;
      mma_bf16(part, Step::biased(weights[tile].template first_word<kPiece>()), x.x, x.y, bias);
      mma_bf16(part, Step::biased(weights[tile].template second_word<kPiece>()), x.z, x.w);
      const float2 scale = weights[tile].template piece_scales<kPiece>();
      fold(acc[tile], part, scale.x, scale.y);
    }
    multiply_step<kTiles, kPiece + 1>(weights, input, acc);
  }
}

template <int kTiles>
__device__ __forceinline__ void multiply_step(const PackedStep<WeightFormat::fp8_block128>* weights,
                                              const StepInput<WeightFormat::fp8_block128>& input,
                                              TileSum* acc) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    TileSum part = {0, 0, 0, 0};
    const auto first = weights[tile].template piece<0>();
    mma_bf16(part, first.first, input.x[0].x, input.x[0].y);
    mma_bf16(part, first.second, input.x[0].z, input.x[0].w);
    const auto second = weights[tile].template piece<1>();
    mma_bf16(part, second.first, input.x[1].x, input.x[1].y);
    mma_bf16(part, second.second, input.x[1].z, input.x[1].w);
    part[0] *= input.scales.x;
    part[1] *= input.scales.y;
    part[2] *= input.scales.x;
    part[3] *= input.scales.y;
    fold(acc[tile], part, first.low, first.high);
  }
}

template <int kTiles>
__device__ __forceinline__ void multiply_step(const PackedStep<WeightFormat::bf16>* weights,
                                              const StepInput<WeightFormat::bf16>& input,
                                              TileSum* acc) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const auto piece = weights[tile].template piece<0>();
    mma_bf16(acc[tile], piece.first, input.x[0].x, input.x[0].y);
    mma_bf16(acc[tile], piece.second, input.x[0].z, input.x[0].w);
  }
}

// The same of one tile for more tokens: bit by bit what multiply_step gives.
template <WeightFormat kFormat, int kColumns>
__device__ void multiply_wide(const PackedStep<kFormat>& weights, const ExpertInput& input,
                              const TokenColumns<kColumns>& columns, int step,
                              TileSum (&acc)[kColumns]) {
  // Inputs of all tokens are under way together, where registers hold them.
  constexpr int kAtOnce = kFormat == WeightFormat::int4_group ? 1 : kColumns;
#pragma unroll
  for (int first = 0; first < kColumns; first += kAtOnce) {
    StepInput<kFormat> x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int c = first + i;
      const int2 rows = kFormat == WeightFormat::fp8_block128 && input.scales != nullptr
                            ? int2{columns.row_of_sum(c, 0), columns.row_of_sum(c, 1)}
                            : int2{};
      x[i] = StepInput<kFormat>::load(input, columns.row[c], rows, step);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) multiply_step<1>(&weights, x[i], &acc[first + i]);
  }
}

// Some steps of some groups of a matrix.
struct StreamRange {
  const std::byte* data;  // step `first_step` of the first group
  int64_t group_bytes;
  int first_step;
  int n_steps;
  int n_groups;
};

// All four tiles of the groups against at most eight tokens. wait_for_input() comes behind the
// first loads of weights and before any of inputs; finish(group, acc) after each group.
template <WeightFormat kFormat, class Wait, class Finish>
__device__ void stream_groups(const StreamRange& range, const ExpertInput& input,
                              const TokenColumns<1>& columns, const Wait& wait_for_input,
                              const Finish& finish) {
  using Step = PackedStep<kFormat>;
  constexpr int kBytes = kStepBytes<kFormat>;
  constexpr int kTilesAtOnce = 2;
  const uint64_t policy = pass_once_policy();
  const int2 sum_rows{columns.row_of_sum(0, 0), columns.row_of_sum(0, 1)};
  const auto load_x = [&](int step) {
    return StepInput<kFormat>::load(input, columns.row[0], sum_rows, range.first_step + step);
  };
  if (range.n_steps == 0) {
    wait_for_input();
    const TileSum none[kGroupTiles] = {};
    for (int group = 0; group < range.n_groups; ++group) finish(group, none);
    return;
  }
  Step ahead[kGroupTiles];
  const std::byte* at = range.data;
#pragma unroll
  for (int tile = 0; tile < kGroupTiles; ++tile) {
    ahead[tile] = Step::load(at + tile * kBytes, policy);
  }
  wait_for_input();
  StepInput<kFormat> x = load_x(0);
  for (int group = 0; group < range.n_groups; ++group) {
    TileSum acc[kGroupTiles] = {};
    for (int step = 0; step < range.n_steps; ++step) {
      const bool is_last = step + 1 == range.n_steps;
      const bool has_next = !is_last || group + 1 < range.n_groups;
      at = is_last ? range.data + (group + 1) * range.group_bytes : at + kGroupTiles * kBytes;
#pragma unroll
      for (int tile = 0; tile < kGroupTiles; tile += kTilesAtOnce) {
        multiply_step<kTilesAtOnce>(ahead + tile, x, acc + tile);
        if (!has_next) continue;
#pragma unroll
        for (int i = tile; i < tile + kTilesAtOnce; ++i) {
          ahead[i] = Step::load(at + i * kBytes, policy);
        }
      }
      if (has_next) x = load_x(is_last ? 0 : step + 1);
    }
    finish(group, acc);
  }
}

// One tile of a group against at most eight tokens. `range.data` is that tile's.
template <WeightFormat kFormat>
__device__ void stream_tile(const StreamRange& range, const ExpertInput& input,
                            const TokenColumns<1>& columns, TileSum& acc) {
  using Step = PackedStep<kFormat>;
  constexpr int64_t kStride = kGroupTiles * kStepBytes<kFormat>;
  // Steps under way. INT4 steps bring four times as many inputs with them.
  constexpr int kAhead = kFormat == WeightFormat::int4_group ? 2 : 4;
  if (range.n_steps == 0) return;
  const uint64_t policy = pass_once_policy();
  const int2 sum_rows{columns.row_of_sum(0, 0), columns.row_of_sum(0, 1)};
  Step ring[kAhead];
  StepInput<kFormat> x_ring[kAhead];
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) {
    const int step = min(slot, range.n_steps - 1);
    ring[slot] = Step::load(range.data + step * kStride, policy);
    x_ring[slot] =
        StepInput<kFormat>::load(input, columns.row[0], sum_rows, range.first_step + step);
  }
  for (int begin = 0; begin < range.n_steps; begin += kAhead) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      if (begin + slot < range.n_steps) multiply_step<1>(&ring[slot], x_ring[slot], &acc);
      const int step = begin + slot + kAhead;
      if (step < range.n_steps) {
        ring[slot] = Step::load(range.data + step * kStride, policy);
        x_ring[slot] =
            StepInput<kFormat>::load(input, columns.row[0], sum_rows, range.first_step + step);
      }
    }
  }
}

// One tile of a group against more tokens.
template <WeightFormat kFormat, int kColumns>
__device__ void stream_tile_wide(const StreamRange& range, const ExpertInput& input,
                                 const TokenColumns<kColumns>& columns, TileSum (&acc)[kColumns]) {
  using Step = PackedStep<kFormat>;
  constexpr int64_t kStride = kGroupTiles * kStepBytes<kFormat>;
  const uint64_t policy = pass_once_policy();
  if (range.n_steps == 0) return;
  Step next = Step::load(range.data, policy);
  for (int step = 0; step < range.n_steps; ++step) {
    const Step weights = next;
    if (step + 1 < range.n_steps) next = Step::load(range.data + (step + 1) * kStride, policy);
    multiply_wide<kFormat>(weights, input, columns, range.first_step + step, acc);
  }
}

}  // namespace quire::cuda
