// The warp of a wide block that copies: weights, tokens and scales into the stages of a ring.
#pragma once

#include "cuda/gemm/wide_finish.cuh"
#include "cuda/gemm/wide_tile.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace quire::cuda {

// Where a lane of the copying warp finds scales.
template <class Tile>
struct WideScaleSource {
  // INT4: of every 32nd row, in pairs of groups; rows past the end take the last one's.
  static constexpr int kLaneRows = kWideRows / kWarpSize;
  const bf16* row[kLaneRows];
  int32_t n_groups;
  int group;
  // FP8: one for each chunk of the weights; of every 32nd token, or null.
  static constexpr int kLaneTokens = Tile::kTokens / kWarpSize;
  const float* weights;
  const float* token[kLaneTokens];
  bool has_tokens;

  __device__ WideScaleSource(const ThinProduct& p, const WidePlace& place) {
    const ThinSide& side = p.sides[place.side];
    const int lane = lane_of_thread();
    if constexpr (Tile::kFormat == WeightFormat::int4_group) {
      group = p.group;
      n_groups = static_cast<int32_t>(p.n_in / p.group);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        const int64_t at = min(place.first_row + lane + i * kWarpSize, side.n_out - 1);
        row[i] = static_cast<const bf16*>(side.weight.scales) + at * side.weight.scale_stride;
      }
    } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      weights = static_cast<const float*>(side.weight.scales) +
                place.first_row / kFp8Block * side.weight.scale_stride;
      has_tokens = p.x_scale != nullptr;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        const int64_t at = min(place.first_token + lane + i * kWarpSize, p.n_tokens - 1);
        token[i] = p.x_scale + at * p.x_scale_stride;
      }
    }
  }
  __device__ void copy_of_weights(uint32_t to, int32_t chunk) const {
    const int lane = lane_of_thread();
    if constexpr (Tile::kFormat == WeightFormat::int4_group) {
      const int32_t first = group == 32 ? 4 * chunk : chunk / 2 * 2;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        const uint32_t at = to + 8 * (lane + i * kWarpSize);
        copy_async_4(at, row[i] + min(first, n_groups - 2), first < n_groups ? 4 : 0);
        if (group == 32) {
          copy_async_4(at + 4, row[i] + min(first + 2, n_groups - 2), first + 2 < n_groups ? 4 : 0);
        }
      }
    } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      if (lane == 0) copy_async_4(to + 4 * Tile::kTokens, weights + chunk);
    }
  }
  __device__ void copy_of_tokens(uint32_t to, int32_t chunk) const {
    if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      if (!has_tokens) return;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        copy_async_4(to + 4 * (lane_of_thread() + i * kWarpSize), token[i] + chunk);
      }
    }
  }
};

// Copies chunks to the ring, by one warp: tiles by its first lane, scales by all lanes.
template <class Tile>
struct WideProducer {
  const WideParams& params;
  const WidePlace& place;
  const WideShared<Tile>& shared;
  const WideScaleSource<Tile> scales;

  __device__ void copy_weights(int stage, int32_t chunk) const {
    if (lane_of_thread() == 0) {
      Barrier* full = shared.full(stage);
      barrier_expect_bytes(full, Tile::kStageBytes);
      // Bytes, or values of bfloat16: an element of the map.
      constexpr int kElements = Tile::kRowBytes / (Tile::kFormat == WeightFormat::bf16 ? 2 : 1);
      const bool is_read_once = params.product.n_tokens <= Tile::kTokens;
      tensor_copy(shared.weights(stage), params.weights[place.side],
                  {chunk * kElements, static_cast<int>(place.first_row), 0}, full,
                  is_read_once ? kEvictFirst : kEvictNormal);
    }
    scales.copy_of_weights(shared_address(shared.scales(stage)), chunk);
  }
  __device__ void copy_x(int stage, int32_t chunk) const {
    Barrier* full = shared.full(stage);
    if (lane_of_thread() == 0) {
#pragma unroll
      for (int panel = 0; panel < Tile::kXPanels; ++panel) {
        tensor_copy(
            shared.x(stage) + panel * Tile::kXPanelBytes, params.x,
            {chunk * Tile::kInputs + panel * kPanelColumns, 0, static_cast<int>(place.first_token)},
            full, kEvictNormal);
      }
    }
    scales.copy_of_tokens(shared_address(shared.scales(stage)), chunk);
    if constexpr (Tile::kScaleBytes > 0) barrier_arrive_when_copied(full);
  }
};

template <class Tile>
__device__ void produce(const WideParams& params, const WidePlace& place,
                        const WideShared<Tile>& shared) {
  const WideProducer<Tile> producer{params, place, shared, {params.product, place}};
  const int n = place.chunk_end - place.chunk_begin;
  const int n_first = min(n, Tile::kStages);
  for (int i = 0; i < n_first; ++i) producer.copy_weights(i, place.chunk_begin + i);
  wait_for_earlier_kernels();
  for (int i = 0; i < n_first; ++i) producer.copy_x(i, place.chunk_begin + i);
  WideTurn<Tile> turn;
  for (int i = Tile::kStages; i < n; ++i) {
    barrier_wait(shared.empty(turn.stage), turn.parity);
    producer.copy_weights(turn.stage, place.chunk_begin + i);
    producer.copy_x(turn.stage, place.chunk_begin + i);
    turn.advance();
  }
}

}  // namespace quire::cuda
