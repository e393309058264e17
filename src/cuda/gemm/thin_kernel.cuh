// The kernel for few tokens (gemm/thin.h). Included by the file that instantiates each format.
#pragma once

#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/thin_finish.cuh"
#include "cuda/gemm/thin_tile.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

// What a lane copies, and where it is in its rows.
template <class Tile>
struct ThinCursor {
  const std::byte* row[Tile::kCopies];
  const bf16* x[Tile::kTokenTiles];
  int x_bytes[Tile::kTokenTiles];  // of a copy: 16, or 0 past the last token
  int32_t weight_chunk, x_chunk;   // that come next

  __device__ ThinCursor(const ThinProduct& p, const ThinSide& side, const ThinPlace& place,
                        int64_t warp_row, int32_t chunk)
      : weight_chunk(chunk), x_chunk(chunk) {
    const int lane = lane_of_thread();
    const auto* weights = static_cast<const std::byte*>(side.weight.values) +
                          int64_t{chunk} * Tile::kRowBytes + 16 * (lane % Tile::kRowLanes);
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      // Rows past the end read the last one, and are not written.
      const int64_t at = warp_row + Tile::kCopyRows * i + lane / Tile::kRowLanes;
      row[i] = weights + min(at, side.n_out - 1) * side.weight.value_stride;
    }
    const bf16* inputs =
        reinterpret_cast<const bf16*>(p.x) + int64_t{chunk} * Tile::kInputs + 8 * (lane % 4);
#pragma unroll
    for (int i = 0; i < Tile::kTokenTiles; ++i) {
      // Columns past the last token are zero: reading a token for them would cost as much as one.
      const int64_t token = place.first_token + 8 * i + lane / 4;
      x[i] = inputs + min(token, p.n_tokens - 1) * p.x_stride;
      x_bytes[i] = token < p.n_tokens ? 16 : 0;
    }
  }

  // Both copy the next chunk to a stage of the ring and go on.
  __device__ void copy_weights(const ThinProduct& p, const ThinPlace& place, uint32_t to) {
    const int lane = lane_of_thread();
    to += lane / Tile::kRowLanes * Tile::kPitch + 16 * (lane % Tile::kRowLanes);
    int bytes = 16;
    if (weight_chunk >= place.n_whole) {
      const int64_t row_bytes = p.n_in * Tile::kRowBytes / Tile::kInputs;
      bytes = bytes_left(row_bytes - int64_t{weight_chunk} * Tile::kRowBytes -
                         16 * (lane % Tile::kRowLanes));
    }
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      copy_async_16_once(to + i * Tile::kCopyRows * Tile::kPitch, row[i], bytes);
      row[i] += Tile::kInputGroups * Tile::kRowBytes;
    }
    weight_chunk += Tile::kInputGroups;
  }
  // A lane's eight inputs of a step: [32 * step + 8 * t, + 8) of the chunk.
  __device__ void copy_x(const ThinProduct& p, const ThinPlace& place, uint32_t to) {
    const int lane = lane_of_thread();
    to += 16 * lane;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      int bytes = 16;
      if (x_chunk >= place.n_whole) {
        bytes = bytes_left(
            2 * (p.n_in - int64_t{x_chunk} * Tile::kInputs - 32 * step - 8 * (lane % 4)));
      }
#pragma unroll
      for (int i = 0; i < Tile::kTokenTiles; ++i) {
        copy_async_16(to + (i * Tile::kSteps + step) * 512, x[i] + 32 * step,
                      min(bytes, x_bytes[i]));
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::kTokenTiles; ++i) x[i] += Tile::kInputGroups * Tile::kInputs;
    x_chunk += Tile::kInputGroups;
  }
};

// All chunks of the warp, through a ring of stages.
template <class Tile>
__device__ void stream(const ThinProduct& p, const ThinSide& side, const ThinPlace& place,
                       std::byte* shared, ThinSums<Tile>& acc) {
  constexpr int kAhead = Tile::kStages - 1;
  const int64_t warp_row = place.first_row + 16 * Tile::kRowTiles * Tile::row_group();
  const int32_t begin = place.chunk_begin + Tile::input_group();
  ThinCursor<Tile> cursor(p, side, place, warp_row, begin);
  std::byte* weights = shared + warp_of_thread() * Tile::kWeightBytes;
  std::byte* x = shared + Tile::kWarps * Tile::kWeightBytes + Tile::input_group() * Tile::kXBytes;
  const uint32_t weights_at = shared_address(weights);
  const uint32_t x_at = shared_address(x);
  ThinScales<Tile> scales(p, side, warp_row, place.first_token);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (cursor.weight_chunk < place.chunk_end) {
      cursor.copy_weights(p, place, weights_at + i * Tile::kStageBytes);
    }
  }
  wait_for_earlier_kernels();
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (cursor.x_chunk < place.chunk_end) cursor.copy_x(p, place, x_at + i * Tile::kStageBytes);
    commit_copies();
  }
  fetch_scales(&scales, begin, place.chunk_end);
  int stage = 0;  // bytes from the ring's begin
  int free_stage = kAhead * Tile::kStageBytes;
  for (int32_t chunk = begin; chunk < place.chunk_end; chunk += Tile::kInputGroups) {
    wait_for_copies<kAhead - 1>();
    // What other lanes copied can be seen, and the stage of the turn before was read by all.
    __syncwarp();
    if (cursor.x_chunk < place.chunk_end) {
      cursor.copy_weights(p, place, weights_at + static_cast<uint32_t>(free_stage));
      cursor.copy_x(p, place, x_at + static_cast<uint32_t>(free_stage));
    }
    commit_copies();
    const ThinScales<Tile> now = scales;
    fetch_scales(&scales, chunk + Tile::kInputGroups, place.chunk_end);
    add_chunk<Tile>(weights + stage, x + stage, now, acc);
    constexpr int kEnd = Tile::kStages * Tile::kStageBytes;
    stage = stage + Tile::kStageBytes == kEnd ? 0 : stage + Tile::kStageBytes;
    free_stage = free_stage + Tile::kStageBytes == kEnd ? 0 : free_stage + Tile::kStageBytes;
  }
  wait_for_copies<0>();
}

// Work of a block: kRows outputs of one side, all tokens, a share of k; a cluster has all of k.
// Grid (cluster, row tiles), 128 or 256 threads, up to 142 KB of shared memory. Moves the weights
// once: bound by memory. The tokens come from the second-level cache, kTokens / kRows of the bytes
// of BF16 weights.
template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocks) void thin_kernel(
    const __grid_constant__ ThinParams params) {
  extern __shared__ __align__(128) std::byte thin_shared[];
  const ThinProduct& p = params.product;
  arrive_at_cluster();
  let_next_kernel_begin();
  const ThinPlace place = place_of<Tile>(params);
  const ThinSide& side = p.sides[place.side];
  ThinSums<Tile> acc = {};
  stream<Tile>(p, side, place, thin_shared, acc);
  finish<Tile>(p, side, place, reinterpret_cast<float*>(thin_shared),
               reinterpret_cast<float*>(thin_shared + Tile::kRingBytes), acc);
}

template <class Tile>
void launch_thin(const Context& context, const ThinProduct& product, const ThinPlan& plan) {
  const auto tiles = [&](int side) { return div_up(product.sides[side].n_out, Tile::kRows); };
  const ThinParams params{.product = product, .tiles_of_first = static_cast<int32_t>(tiles(0))};
  const int64_t n_tiles = tiles(0) + (product.n_sides == 2 ? tiles(1) : 0);
  CHECK(product.n_tokens <= Tile::kTokens && n_tiles < 65536);  // grid.y
  const auto splits = static_cast<unsigned>(plan.splits);
  launch(context.stream,
         {.grid = dim3(splits, static_cast<unsigned>(n_tiles)),
          .threads = Tile::kThreads,
          .shared_bytes = Tile::kSharedBytes,
          .cluster = splits,
          .blocks_of_sm = plan.is_alone ? 1 : 0},
         thin_kernel<Tile>, params);
}

template <WeightFormat kFormat>
void launch_thin_format(const Context& context, const ThinProduct& product) {
  using One = ThinTile<kFormat, 1>;
  using Two = ThinTile<kFormat, 2>;
  using Three = ThinTile<WeightFormat::bf16, 3>;
  int64_t n_row_tiles = 0;
  for (int i = 0; i < product.n_sides; ++i) {
    n_row_tiles += div_up(product.sides[i].n_out, int64_t{kThinRows});
  }
  const bool is_one = product.n_tokens <= One::kTokens;
  const ThinPlan plan = thin_plan({.format = kFormat,
                                   .n_tokens = product.n_tokens,
                                   .n_in = product.n_in,
                                   .n_row_tiles = n_row_tiles,
                                   .n_chunks = div_up(product.n_in, int64_t{One::kInputs}),
                                   .n_warps = is_one ? One::kWarps : Two::kWarps},
                                  context.n_sms);
  if constexpr (kFormat == WeightFormat::bf16) {
    using Deep = ThinTile<kFormat, 1, ThinRing::two_thirds>;
    static_assert(Three::kWarps == Two::kWarps && Three::kTokens == kThinTokensMax);
    static_assert(One::kStages == kThinHalfTurns + 1 && Deep::kStages == kThinTwoThirdsTurns + 1);
    if (product.n_tokens > Two::kTokens) return launch_thin<Three>(context, product, plan);
    if (plan.ring == ThinRing::two_thirds) {
      return launch_thin<Deep>(context, product, plan);
    }
  }
  if (is_one) return launch_thin<One>(context, product, plan);
  launch_thin<Two>(context, product, plan);
}

}  // namespace quire::cuda
