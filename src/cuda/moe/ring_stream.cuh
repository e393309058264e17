// Streams of packed weights through a warp's ring in shared memory: what the kernels of
// expert_ring.h are made of.
//
// An element's sum is taken step by step whatever the number of tiles or tokens at once. Groups of
// tiles are of INT4, single tiles of any format.
#pragma once

#include "cuda/moe/group_step.cuh"
#include "cuda/moe/weight_ring.cuh"

namespace quire::cuda {

// The tokens of a warp's product: lane 4 g + t reads the row of column 8 c + g. Columns past the
// end have the last row again; their sums are not used.
template <int kColumns>
struct RowColumns {
  int row[kColumns];
  int n;  // columns that are tokens

  // Column i is row_of(first + i).
  template <class RowOf>
  __device__ RowColumns(int first, int n_rows, const RowOf& row_of)
      : n(min(n_rows - first, 8 * kColumns)) {
    const int g = lane_of_thread() / 4;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) row[c] = row_of(first + min(8 * c + g, n - 1));
  }
  // The row of column 8 c + 2 t + i, where a lane holds sums. For a whole warp.
  __device__ int row_of_sum(int c, int i) const {
    return __shfl_sync(kFullWarp, row[c], (2 * (lane_of_thread() % 4) + i) * 4);
  }
  // Whether it is a token.
  __device__ bool has_sum(int c, int i) const { return 8 * c + 2 * (lane_of_thread() % 4) + i < n; }
};

// Where a lane reads the inputs of its rows, and what multiplies its sums.
template <WeightFormat kFormat, int kColumns>
class LaneInput {
 public:
  __device__ LaneInput(const ExpertInput& input, const RowColumns<kColumns>& columns)
      : rows_(input.rows + 8 * (lane_of_thread() % 4)),
        scales_(input.scales),
        n_in_(input.n_in - 8 * (lane_of_thread() % 4)) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      begin_[c] = static_cast<uint32_t>(columns.row[c] * input.stride);
      if constexpr (kFormat == WeightFormat::fp8_block128) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          scale_begin_[c][i] = static_cast<uint32_t>(columns.row_of_sum(c, i) * input.scale_stride);
        }
      }
    }
  }
  // Inputs k + 8 t + [0, 8); zero past the end.
  __device__ __forceinline__ uint4 load(int c, int k) const {
    if (k >= n_in_) return {0, 0, 0, 0};
    return __ldcg(reinterpret_cast<const uint4*>(rows_ + begin_[c] + k));
  }
  // For the block of 128 inputs around k.
  __device__ __forceinline__ float2 load_scales(int c, int k) const {
    if (kFormat != WeightFormat::fp8_block128 || scales_ == nullptr) return {1.0F, 1.0F};
    const float* at = scales_ + k / kFp8Block;
    return {__ldcg(at + scale_begin_[c][0]), __ldcg(at + scale_begin_[c][1])};
  }
  // Of eight tokens.
  __device__ __forceinline__ StepInput<kFormat> load_step(int step, int c = 0) const {
    StepInput<kFormat> out;
    const int k = step * kStepInputs<kFormat>;
#pragma unroll
    for (int piece = 0; piece < PackedStep<kFormat>::kPieces; ++piece) {
      out.x[piece] = load(c, k + 32 * piece);
    }
    out.scales = load_scales(c, k);
    return out;
  }

 private:
  const Bf16* rows_;
  const float* scales_;
  int n_in_;
  uint32_t begin_[kColumns];
  uint32_t scale_begin_[kColumns][2];
};

// What a warp multiplies: acc += `n_steps` steps from `first_step` on, chunk by chunk of its ring.
// All four tiles of a group against at most eight tokens.
__device__ __forceinline__ void stream_group(WeightRing& ring, const LaneInput<kInt4, 1>& input,
                                             int first_step, int n_steps,
                                             TileSum (&acc)[kGroupTiles]) {
  if (n_steps == 0) return;
  const MmaA minus_24 = held_minus_24();
  StepInput<kInt4> x = input.load_step(first_step);
  for (int step = 0; step < n_steps; ++step) {
    StepInput<kInt4> next = x;
    if (step + 1 < n_steps) next = input.load_step(first_step + step + 1);
    multiply_chunk(ring.wait(), x, minus_24, acc);
    ring.free();
    x = next;
  }
}

// One tile against at most eight tokens.
template <WeightFormat kFormat>
__device__ __forceinline__ void stream_tile(WeightRing& ring, const LaneInput<kFormat, 1>& input,
                                            int first_step, int n_steps, TileSum& acc) {
  if (n_steps == 0) return;
  // Steps whose inputs are under way.
  constexpr int kAhead = PackedStep<kFormat>::kPieces > 2 ? 2 : 4;
  static_assert(kGroupTiles % kAhead == 0);
  StepInput<kFormat> x[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    x[i] = input.load_step(first_step + min(i, n_steps - 1));
  }
  for (int begin = 0; begin < n_steps; begin += kGroupTiles) {
    uint32_t chunk = ring.wait();
#pragma unroll
    for (int i = 0; i < kGroupTiles; ++i) {
      const int step = begin + i;
      if (step >= n_steps) continue;
      const auto weights = step_at<kFormat>(chunk + i * kStepBytes<kFormat>);
      multiply_step<1>(&weights, x[i % kAhead], &acc);
      if (step + kAhead < n_steps) x[i % kAhead] = input.load_step(first_step + step + kAhead);
    }
    ring.free();
  }
}

// One tile against more tokens.
template <WeightFormat kFormat, int kColumns>
__device__ __forceinline__ void stream_tile_wide(WeightRing& ring,
                                                 const LaneInput<kFormat, kColumns>& input,
                                                 int first_step, int n_steps,
                                                 TileSum (&acc)[kColumns]) {
  // Steps whose inputs are under way.
  constexpr int kAhead = kGroupTiles / PackedStep<kFormat>::kPieces;
  if (n_steps == 0) return;
  StepInput<kFormat> x[kAhead][kColumns];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      x[i][c] = input.load_step(first_step + min(i, n_steps - 1), c);
    }
  }
  for (int begin = 0; begin < n_steps; begin += kGroupTiles) {
    const uint32_t chunk = ring.wait();
#pragma unroll
    for (int i = 0; i < kGroupTiles; ++i) {
      const int step = begin + i;
      if (step >= n_steps) continue;
      const auto weights = step_at<kFormat>(chunk + i * kStepBytes<kFormat>);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) multiply_step<1>(&weights, x[i % kAhead][c], &acc[c]);
      if (step + kAhead >= n_steps) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        x[i % kAhead][c] = input.load_step(first_step + step + kAhead, c);
      }
    }
    ring.free();
  }
}

}  // namespace quire::cuda
