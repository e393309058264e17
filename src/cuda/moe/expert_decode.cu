#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/moe/arrivals.cuh"
#include "cuda/moe/block_lists.cuh"
#include "cuda/moe/expert_decode.h"
#include "cuda/moe/expert_stream.cuh"
#include "cuda/moe/warp_sums.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kWarps = kDecodeGrid.warps;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerSm = kDecodeGrid.blocks_per_sm;
constexpr int kWideColumns = 4;  // of eight tokens, at once

// The tokens of an expert.
struct Work {
  const ExpertSide& side;
  const std::byte* weights;  // of the expert
  const uint16_t* pairs;     // null of the shared expert: every token
  int n_rows;
  int active;  // or kSharedExpert
};

__device__ Work shared_work(const DecodeParams& p) {
  return {p.shared, p.shared.weights.data, nullptr, p.n_tokens, kSharedExpert};
}

__device__ Work routed_work(const DecodeParams& p, const BlockLists& lists, int active) {
  return {p.routed, p.routed.weights.data + lists.active[active] * p.routed.weights.expert_bytes,
          lists.pairs + lists.first_pair(active), lists.rows_of(active), active};
}

__device__ int gate_up_units(const DecodeParams& p, const BlockLists& lists) {
  return p.gate_up.shared + lists.n_active * (p.gate_up.routed / p.unit);
}

// The scratch memory comes first.
__device__ ListMaker<kThreads> list_maker(const DecodeParams& p, std::byte* memory) {
  return {p, memory + making_bytes(p.routed.weights.n_experts, p.n_tokens * p.top_k), memory};
}

using SharedSums = WarpSums<kWarps, kWideColumns>;

// gate and up for some tiles of an expert; the block's warps share the inputs.
template <WeightFormat kFormat>
__device__ void gate_up_unit(const DecodeParams& p, const Work& work, int tile, int n_tiles,
                             SharedSums& sums) {
  const PackedMatrix& m = work.side.weights;
  const auto input_row = [&](int i) { return work.pairs == nullptr ? i : work.pairs[i] / p.top_k; };
  const int first_step = m.n_steps * warp_of_thread() / kWarps;
  const StreamRange range{
      .data = work.weights +
              (static_cast<int64_t>(tile / kGroupTiles) * m.n_steps + first_step) * kGroupTiles *
                  kStepBytes<kFormat> +
              tile % kGroupTiles * kStepBytes<kFormat>,
      .group_bytes = 0,
      .first_step = first_step,
      .n_steps = m.n_steps * (warp_of_thread() + 1) / kWarps - first_step,
      .n_groups = 1};
  const auto finish = [&](int n_sums, int sum_tiles, int first) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n_sums * kInnerOfTile * 8; i += kThreads) {
      const int row = i % kInnerOfTile;
      const int token = i / kInnerOfTile % 8;
      const int index = i / (kInnerOfTile * 8);
      const int inner = (tile + index * sum_tiles) * kInnerOfTile + row;
      const int at = first + (1 - sum_tiles) * 8 * index + token;
      if (at >= work.n_rows || inner >= work.side.out_stride) continue;
      const int64_t out_row = work.pairs == nullptr ? at : work.pairs[at];
      reinterpret_cast<bf16*>(work.side.out)[out_row * work.side.out_stride + inner] =
          sums.inner(index, row, token);
    }
    __syncthreads();
  };
  if (n_tiles == kGroupTiles && work.n_rows <= 8) {
    const TokenColumns<1> columns(0, work.n_rows, input_row);
    const auto no_wait = [] {};
    stream_groups<kFormat>(range, work.side.input, columns, no_wait, [&](int, const auto& acc) {
#pragma unroll
      for (int i = 0; i < kGroupTiles; ++i) sums.store(i, acc[i]);
    });
    finish(kGroupTiles, 1, 0);
  } else if (work.n_rows <= 8) {
    const TokenColumns<1> columns(0, work.n_rows, input_row);
    TileSum acc = {};
    stream_tile<kFormat>(range, work.side.input, columns, acc);
    sums.store(0, acc);
    finish(1, 1, 0);
  } else {
    for (int first = 0; first < work.n_rows; first += 8 * kWideColumns) {
      const TokenColumns<kWideColumns> columns(first, work.n_rows, input_row);
      TileSum acc[kWideColumns] = {};
      stream_tile_wide<kFormat>(range, work.side.input, columns, acc);
#pragma unroll
      for (int i = 0; i < kWideColumns; ++i) sums.store(i, acc[i]);
      finish(kWideColumns, 0, first);
    }
  }
}

template <WeightFormat kFormat>
__device__ void gate_up_format(const DecodeParams& p, const Work& work, int tile, int n_tiles,
                               SharedSums& sums) {
  if (n_tiles == kGroupTiles && work.n_rows > 8) {
    for (int i = 0; i < kGroupTiles; ++i) gate_up_unit<kFormat>(p, work, tile + i, 1, sums);
  } else {
    gate_up_unit<kFormat>(p, work, tile, n_tiles, sums);
  }
}

// A unit is one tile of the shared expert, or `unit` tiles of a routed one: 8 or 32 inner values of
// all its tokens. Units go round the blocks, the shared expert's first: they are the longest.
// Grid 2 blocks a multiprocessor, 256 threads, 22 KiB of shared memory for 64 tokens of Kimi K2.
// Each warp takes an eighth of the inputs. Moves the weights once, and inputs once a unit: bound by
// memory.
__global__ __launch_bounds__(kThreads, kBlocksPerSm) void gate_up_kernel(
    const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ SharedSums sums;
  __shared__ BlockLists lists;
  ListMaker<kThreads> maker = list_maker(p, memory);
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  maker.make(p, lists);
  __syncthreads();
  const int n_shared = p.shared.weights.n_groups * kGroupTiles;
  const int of_expert = p.routed.weights.n_groups * kGroupTiles / p.unit;
  const int n_units = gate_up_units(p, lists);
  const int n_blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  for (int round = 0; round * n_blocks < n_units; ++round) {
    // There and back: blocks that began with the longest units end with the last ones.
    const int unit = round * n_blocks + (round % 2 == 0 ? block : n_blocks - 1 - block);
    if (unit >= n_units) continue;
    const bool is_shared = unit < n_shared;
    const int routed = unit - n_shared;
    const Work work = is_shared ? shared_work(p) : routed_work(p, lists, routed / of_expert);
    const int tile = is_shared ? unit : routed % of_expert * p.unit;
    const int n_tiles = is_shared ? 1 : p.unit;
    switch (work.side.weights.format) {
      case WeightFormat::bf16:
        gate_up_format<WeightFormat::bf16>(p, work, tile, n_tiles, sums);
        break;
      case WeightFormat::fp8_block128:
        gate_up_format<WeightFormat::fp8_block128>(p, work, tile, n_tiles, sums);
        break;
      case WeightFormat::int4_group:
        gate_up_format<WeightFormat::int4_group>(p, work, tile, n_tiles, sums);
        break;
    }
    if (p.arrived != nullptr && threadIdx.x == 0) arrive(p, work.active, n_tiles);
  }
}

// Tiles of an expert's down matrix, one warp: whole groups, or one tile. Waits for the inputs when
// weights are under way.
template <WeightFormat kFormat>
__device__ void down_tiles(const DecodeParams& p, const Work& work, int tile, int n_tiles) {
  const auto wait_for_input = [&] {
    if (p.arrived == nullptr) return wait_for_earlier_kernels();
    wait_for_arrivals(p, work.active,
                      work.active == kSharedExpert ? p.gate_up.shared : p.gate_up.routed);
  };
  const ExpertSide& side = work.side;
  const auto row_of = [&](int i) { return work.pairs == nullptr ? i : work.pairs[i]; };
  const int64_t group_bytes = int64_t{side.weights.n_steps} * kGroupTiles * kStepBytes<kFormat>;
  StreamRange range{.data = work.weights + tile / kGroupTiles * group_bytes +
                            tile % kGroupTiles * kStepBytes<kFormat>,
                    .group_bytes = group_bytes,
                    .first_step = 0,
                    .n_steps = side.weights.n_steps,
                    .n_groups = n_tiles / kGroupTiles};
  const auto write = [&](int at, const TileSum& acc, int2 rows) {
    if (at * kTileRows >= side.n_out) return;
    Bf16* to = side.out + at * kTileRows + lane_of_thread() / 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t row = i == 0 ? rows.x : rows.y;
      if (row >= 0) store_halves(to + row * side.out_stride, acc, i);
    }
  };
  if (work.n_rows <= 8) {
    const TokenColumns<1> columns(0, work.n_rows, row_of);
    const int2 rows{columns.row_of_sum(0, 0), columns.row_of_sum(0, 1)};
    if (n_tiles == 1) {
      TileSum acc = {};
      wait_for_input();
      stream_tile<kFormat>(range, side.input, columns, acc);
      write(tile, acc, rows);
      return;
    }
    stream_groups<kFormat>(range, side.input, columns, wait_for_input,
                           [&](int group, const auto& acc) {
#pragma unroll
                             for (int i = 0; i < kGroupTiles; ++i) {
                               write(tile + group * kGroupTiles + i, acc[i], rows);
                             }
                           });
    return;
  }
  wait_for_input();
  for (int first = 0; first < work.n_rows; first += 8 * kWideColumns) {
    const TokenColumns<kWideColumns> columns(first, work.n_rows, row_of);
    for (int i = 0; i < n_tiles; ++i) {
      TileSum acc[kWideColumns] = {};
      StreamRange one = range;
      one.data += i / kGroupTiles * group_bytes + i % kGroupTiles * kStepBytes<kFormat>;
      stream_tile_wide<kFormat>(one, side.input, columns, acc);
#pragma unroll
      for (int column = 0; column < kWideColumns; ++column) {
        write(tile + i, acc[column],
              {columns.row_of_sum(column, 0), columns.row_of_sum(column, 1)});
      }
    }
  }
}

__device__ void down_any_format(const DecodeParams& p, const Work& work, int tile, int n_tiles) {
  switch (work.side.weights.format) {
    case WeightFormat::bf16:
      return down_tiles<WeightFormat::bf16>(p, work, tile, n_tiles);
    case WeightFormat::fp8_block128:
      return down_tiles<WeightFormat::fp8_block128>(p, work, tile, n_tiles);
    case WeightFormat::int4_group:
      return down_tiles<WeightFormat::int4_group>(p, work, tile, n_tiles);
  }
}

// The groups of all active experts, one after another, are cut among the warps of the grid: a warp
// streams some groups of one expert, or of two. Tiles of the shared expert go to single warps. What
// was chosen is there before the kernel ahead lets this one begin, so the first weights are read
// while it still runs. Grid 2 blocks a multiprocessor, 256
// threads, 6 KiB of shared memory for 64 tokens of Kimi K2. Moves the weights once: bound by
// memory.
__global__ __launch_bounds__(kThreads, kBlocksPerSm) void down_kernel(
    const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(16) std::byte memory[];
  __shared__ BlockLists lists;
  let_next_kernel_begin();
  list_maker(p, memory).make(p, lists);
  __syncthreads();
  const int n_warps = static_cast<int>(gridDim.x) * kWarps;
  const int warp = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
  const int n_groups = p.routed.weights.n_groups;
  const int64_t total = int64_t{lists.n_active} * n_groups;
  const auto shares = DownShares::of(total, gate_up_units(p, lists), p.lead, kWarps);
  int at = shares.before(total, warp);
  const int end = shares.before(total, warp + 1);
  while (at < end) {
    const int group = at % n_groups;
    const int n = min(end - at, n_groups - group);
    down_any_format(p, routed_work(p, lists, at / n_groups), group * kGroupTiles, n * kGroupTiles);
    at += n;
  }
  const int n_shared = p.shared.weights.n_groups * kGroupTiles;
  for (int tile = warp; tile < n_shared; tile += n_warps) {
    down_any_format(p, shared_work(p), tile, 1);
  }
  wait_for_earlier_kernels();
}

// Experts that can be active.
int64_t active_max(const DecodeParams& p) {
  return std::min(int64_t{p.n_tokens} * p.top_k, p.routed.weights.n_experts);
}

LaunchShape persistent(const Context& context, const DecodeParams& p, int64_t n_units) {
  const int64_t n_experts = p.routed.weights.n_experts;
  const int64_t n_pairs = int64_t{p.n_tokens} * p.top_k;
  // The lists' masks and values.
  CHECK(p.n_tokens <= kListTokensMax && std::max(n_pairs, n_experts) <= UINT16_MAX);
  const int64_t blocks = std::min<int64_t>(n_units, kBlocksPerSm * context.n_sms);
  return {.grid = dim3(static_cast<unsigned>(blocks)),
          .threads = kThreads,
          .shared_bytes = making_bytes(n_experts, n_pairs) + block_lists_bytes(n_experts, n_pairs)};
}

}  // namespace

void launch_gate_up(const Context& context, const DecodeParams& params) {
  const int64_t n_units =
      params.gate_up.shared + active_max(params) * params.gate_up.routed / params.unit;
  launch(context.stream, persistent(context, params, n_units), gate_up_kernel, params);
}

void launch_down(const Context& context, const DecodeParams& params) {
  launch(context.stream, persistent(context, params, kBlocksPerSm * context.n_sms), down_kernel,
         params);
}

}  // namespace quire::cuda
