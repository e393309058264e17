#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/moe/expert_ring.h"
#include "cuda/moe/ring_stream.cuh"
#include "cuda/moe/ring_work.cuh"
#include "cuda/moe/warp_sums.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kWarps = kRingGrid.warps;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kBlocksPerSm = kRingGrid.blocks_per_sm;
constexpr int kSumsAtOnce = 4;  // of a warp, through shared memory

using SharedSums = WarpSums<kWarps, kSumsAtOnce>;

constexpr int kRingsBytes = kWarps * kRingSlots * kChunkBytes;

// How often a tile of the shared expert is taken, each time for at most kWideRows tokens.
__host__ __device__ inline int shared_turns(const DecodeParams& p) {
  return (p.n_tokens + kWideRows - 1) / kWideRows;
}

__device__ int gate_up_units(const DecodeParams& p, const BlockLists& lists) {
  return p.gate_up.shared * shared_turns(p) + lists.n_active * (p.gate_up.routed / p.unit);
}

// Units go round the blocks. The shared expert's come first and go to blocks that have no more
// others than any.
struct GateUpUnits {
  int n_shared;  // tiles, times turns of rows
  int turns;
  int of_expert;
  int n_tiles;  // of a routed unit
  int n_units;
  int at;  // of the block's next unit, or past the end

  __device__ static GateUpUnits of(const DecodeParams& p, const BlockLists& lists) {
    const int turns = shared_turns(p);
    const int n_shared = p.shared.weights.n_groups * kGroupTiles * turns;
    const int of_expert = p.routed.weights.n_groups * kGroupTiles / p.unit;
    return {n_shared,
            turns,
            of_expert,
            p.unit,
            n_shared + lists.n_active * of_expert,
            static_cast<int>(gridDim.x - 1 - blockIdx.x)};
  }
  __device__ bool next(Unit* unit) {
    const int n_blocks = static_cast<int>(gridDim.x);
    const int block = static_cast<int>(blockIdx.x);
    if (at >= n_units) {
      if (at >= n_blocks) return false;
      at = n_blocks + block;  // the first turn went the other way
      if (at >= n_units) return false;
    }
    const int i = at;
    at = i < n_blocks ? n_blocks + block : i + n_blocks;
    *unit = i < n_shared ? Unit{kSharedExpert, i / turns, 1, i % turns * kWideRows}
                         : Unit{(i - n_shared) / of_expert, (i - n_shared) % of_expert * n_tiles,
                                n_tiles, 0};
    return true;
  }
};

// What the warps of a block have of an item of gate and up: a quarter of its steps each.
struct GateUpItem {
  const DecodeParams& p;
  const BlockLists& lists;
  const Item& item;
  const ExpertSide& side;

  __device__ int begin(int warp) const { return side.weights.n_steps * warp / kWarps; }
  // Of row i of the expert.
  __device__ int pair(int i) const {
    return item.active == kSharedExpert ? i : lists.pairs[item.pairs + i];
  }
  template <int kColumns>
  __device__ RowColumns<kColumns> columns() const {
    return {item.first, item.n_rows,
            [&](int i) { return item.active == kSharedExpert ? i : pair(i) / p.top_k; }};
  }
};

// How much of an item counts as done when a warp has written its part of it.
__device__ inline int item_count(const Item& item) {
  return item.n_groups > 0 ? item.n_groups * kGroupTiles : 1;
}

// What gate and up count up to.
__device__ inline int all_arrived(const DecodeParams& p, const Item& item) {
  return kWarps * (item.active == kSharedExpert
                       ? p.gate_up.shared * shared_turns(p)
                       : p.gate_up.routed * ((item.n_rows + kWideRows - 1) / kWideRows));
}

// gate and up: the warps' sums become inner values. Item by item the sums are taken in turns, so
// that one barrier is enough.
class GateUpFinish {
 public:
  __device__ explicit GateUpFinish(SharedSums* sums) : sums_(sums) {}

  // Sums of `n` tiles from `tile` on (kIsTiles), or of one tile and 8 `n` rows from `first` on.
  template <bool kIsTiles, int kSums>
  __device__ __forceinline__ void finish(const GateUpItem& it, const TileSum (&acc)[kSums], int n,
                                         int first) {
    static_assert(kSums <= kSumsAtOnce);
    SharedSums& sums = sums_[turn_];
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (i < n) sums.store(i, acc[i]);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n * kInnerOfTile * 8; i += kThreads) {
      const int row = i % kInnerOfTile;
      const int index = i / (kInnerOfTile * 8);
      const int inner = (it.item.tile + (kIsTiles ? index : 0)) * kInnerOfTile + row;
      const int at = first + (kIsTiles ? 0 : 8 * index) + i / kInnerOfTile % 8;
      if (at >= it.item.n_rows || inner >= it.side.out_stride) continue;
      reinterpret_cast<bf16*>(it.side.out)[it.pair(at) * it.side.out_stride + inner] =
          sums.inner(index, row, i / kInnerOfTile % 8);
    }
  }

 private:
  SharedSums* sums_;
  int turn_ = 0;
};

template <WeightFormat kFormat>
__device__ __forceinline__ void gate_up_item(const GateUpItem& it, WeightRing ring,
                                             GateUpFinish& finish) {
  const int begin = it.begin(warp_of_thread());
  const int n_steps = it.begin(warp_of_thread() + 1) - begin;
  if (it.item.n_rows > kNarrowRows) {
    const auto columns = it.columns<kWideColumns>();
    TileSum acc[kWideColumns] = {};
    stream_tile_wide(ring, LaneInput<kFormat, kWideColumns>(it.side.input, columns), begin, n_steps,
                     acc);
    ring.save();
    return finish.finish<false>(it, acc, (columns.n + 7) / 8, it.item.first);
  }
  const LaneInput<kFormat, 1> input(it.side.input, it.columns<1>());
  if constexpr (kFormat == kInt4) {
    if (it.item.n_groups > 0) {
      TileSum acc[kGroupTiles] = {};
      stream_group(ring, input, begin, n_steps, acc);
      ring.save();
      return finish.finish<true>(it, acc, kGroupTiles, 0);
    }
  }
  TileSum acc[1] = {};
  stream_tile(ring, input, begin, n_steps, acc[0]);
  ring.save();
  finish.finish<true>(it, acc, 1, 0);
}

// A unit is one tile of the shared expert, or `unit` tiles of a routed one: 8 or 32 inner values of
// at most 32 tokens, or of all. Grid 3 blocks a multiprocessor, 128 threads, 56 KiB of shared
// memory for 64 tokens of Kimi K2. Each warp takes a quarter of the inputs. Moves the weights once,
// and inputs once a unit: bound by memory.
__global__ __launch_bounds__(kThreads, kBlocksPerSm) void ring_gate_up_kernel(
    const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ BlockState<GateUpUnits, kWarps> block;
  auto* sums = reinterpret_cast<SharedSums*>(memory + kRingsBytes);
  block.begin(p);
  ListMaker<kThreads> lists(p, reinterpret_cast<std::byte*>(sums + 2), memory);
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  lists.make(p, block.lists);
  __syncthreads();
  const int warp = warp_of_thread();
  if (lane_of_thread() == 0) block.warps[warp].begin(GateUpUnits::of(p, block.lists));
  __syncwarp();
  GateUpFinish finish(sums);
  each_item(block, memory, warp, kWarps, [&](const Item& item) {
    const DecodeParams& params = block.params;
    const GateUpItem it{params, block.lists, item,
                        item.active == kSharedExpert ? params.shared : params.routed};
    switch (it.side.weights.format) {
      case WeightFormat::bf16:
        gate_up_item<WeightFormat::bf16>(it, block.ring(memory), finish);
        break;
      case WeightFormat::fp8_block128:
        gate_up_item<WeightFormat::fp8_block128>(it, block.ring(memory), finish);
        break;
      case WeightFormat::int4_group:
        gate_up_item<WeightFormat::int4_group>(it, block.ring(memory), finish);
        break;
    }
    if (params.arrived == nullptr) return;
    __syncwarp();
    if (lane_of_thread() == 0) arrive(params, item.active, item_count(item));
  });
}

// A warp's share: tiles of the shared expert, each for some rows, then groups of routed experts.
struct DownUnits {
  int n_groups;  // of an expert
  int turns;
  int at, end;  // groups of all active experts
  int shared_at, shared_end;

  // A tile of the shared expert takes as long as a group.
  __device__ static DownUnits of(const DecodeParams& p, const BlockLists& lists) {
    const int warp = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
    const int n_groups = p.routed.weights.n_groups;
    const int turns = shared_turns(p);
    const int64_t n_shared = int64_t{p.shared.weights.n_groups} * kGroupTiles * turns;
    const int64_t total = int64_t{lists.n_active} * n_groups + n_shared;
    const auto shares = DownShares::of(total, gate_up_units(p, lists), p.lead, kWarps);
    const auto share = [&](int64_t n, int i) { return shares.before(n, i); };
    DownUnits out{n_groups, turns, 0, 0, share(n_shared, warp), share(n_shared, warp + 1)};
    out.at = share(total, warp) - out.shared_at;
    out.end = share(total, warp + 1) - out.shared_end;
    return out;
  }
  __device__ bool next(Unit* unit) {
    if (shared_at < shared_end) {
      *unit = {kSharedExpert, shared_at / turns, 1, shared_at % turns * kWideRows};
      ++shared_at;
      return true;
    }
    if (at >= end) return false;
    const int group = at % n_groups;
    const int n = min(end - at, n_groups - group);
    *unit = {at / n_groups, group * kGroupTiles, n * kGroupTiles, 0};
    at += n;
    return true;
  }
};

// Where the sums of columns 8 c + 2 t + i go.
template <int kColumns>
class PartialColumns {
 public:
  __device__ PartialColumns(const ExpertSide& side, const RowColumns<kColumns>& columns)
      : n_out_(side.n_out) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t row = columns.row_of_sum(c, i);
        to_[c][i] = columns.has_sum(c, i)
                        ? side.out + row * side.out_stride + lane_of_thread() / 4 * 2
                        : nullptr;
      }
    }
  }
  __device__ __forceinline__ void write(int c, int tile, const TileSum& acc) const {
    const int output = tile * kTileRows;
    if (output >= n_out_) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (to_[c][i] != nullptr) store_halves(to_[c][i] + output, acc, i);
    }
  }

 private:
  int n_out_;
  Bf16* to_[kColumns][2];
};

// Groups of 256 inputs, which stay in registers.
constexpr int kHeldSteps = 256 / kStepInputs<kInt4>;

template <int kColumns>
__device__ RowColumns<kColumns> down_columns(const BlockLists& lists, const Item& item) {
  return {item.first, item.n_rows,
          [&](int i) { return item.active == kSharedExpert ? i : lists.pairs[item.pairs + i]; }};
}

__device__ void down_groups(const ExpertSide& side, const BlockLists& lists, const Item& item,
                            WeightRing ring) {
  const RowColumns<1> columns = down_columns<1>(lists, item);
  const LaneInput<kInt4, 1> input(side.input, columns);
  const PartialColumns<1> to(side, columns);
  const int n_steps = side.weights.n_steps;
  const int n_groups = item.n_groups;
  int tile = item.tile;
  if (n_steps != kHeldSteps) {
    for (int group = 0; group < n_groups; ++group, tile += kGroupTiles) {
      TileSum acc[kGroupTiles] = {};
      stream_group(ring, input, 0, n_steps, acc);
#pragma unroll
      for (int i = 0; i < kGroupTiles; ++i) to.write(0, tile + i, acc[i]);
    }
    return ring.save();
  }
  const MmaA minus_24 = held_minus_24();
  StepInput<kInt4> x[kHeldSteps];
#pragma unroll
  for (int step = 0; step < kHeldSteps; ++step) x[step] = input.load_step(step);
  for (int group = 0; group < n_groups; ++group, tile += kGroupTiles) {
    TileSum acc[kGroupTiles] = {};
#pragma unroll
    for (int step = 0; step < kHeldSteps; ++step) {
      multiply_chunk(ring.wait(), x[step], minus_24, acc);
      ring.free();
    }
#pragma unroll
    for (int i = 0; i < kGroupTiles; ++i) to.write(0, tile + i, acc[i]);
  }
  ring.save();
}

template <WeightFormat kFormat>
__device__ void down_item(const ExpertSide& side, const BlockLists& lists, const Item& item,
                          WeightRing ring) {
  const int n_steps = side.weights.n_steps;
  if (item.n_rows > kNarrowRows) {
    const auto columns = down_columns<kWideColumns>(lists, item);
    TileSum acc[kWideColumns] = {};
    stream_tile_wide(ring, LaneInput<kFormat, kWideColumns>(side.input, columns), 0, n_steps, acc);
    ring.save();
    const PartialColumns<kWideColumns> to(side, columns);
#pragma unroll
    for (int c = 0; c < kWideColumns; ++c) to.write(c, item.tile, acc[c]);
    return;
  }
  if constexpr (kFormat == kInt4) {
    if (item.n_groups > 0) return down_groups(side, lists, item, ring);
  }
  const RowColumns<1> columns = down_columns<1>(lists, item);
  TileSum acc = {};
  stream_tile(ring, LaneInput<kFormat, 1>(side.input, columns), 0, n_steps, acc);
  ring.save();
  PartialColumns<1>(side, columns).write(0, item.tile, acc);
}

// The groups of all active experts and the tiles of the shared one, one after another, are cut
// among the warps of the grid. What was chosen is there before the kernel ahead lets this
// one begin, so weights are brought while it still runs. Grid 3 blocks a multiprocessor, 128
// threads, 39 KiB of shared memory. Moves the weights once: bound by memory.
__global__ __launch_bounds__(kThreads, kBlocksPerSm) void ring_down_kernel(
    const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ BlockState<DownUnits, kWarps> block;
  block.begin(p);
  let_next_kernel_begin();
  ListMaker<kThreads>(p, memory + kRingsBytes, memory).make(p, block.lists);
  __syncthreads();
  if (lane_of_thread() == 0) {
    block.warps[warp_of_thread()].begin(DownUnits::of(p, block.lists));
  }
  __syncwarp();
  bool has_waited = false;
  each_item(block, memory, 0, 1, [&](const Item& item) {
    const DecodeParams& params = block.params;
    if (params.arrived != nullptr) {
      wait_for_arrivals(params, item.active, all_arrived(params, item));
    } else if (!has_waited) {
      wait_for_earlier_kernels();
      has_waited = true;
    }
    const ExpertSide& side = item.active == kSharedExpert ? params.shared : params.routed;
    switch (side.weights.format) {
      case WeightFormat::bf16:
        return down_item<WeightFormat::bf16>(side, block.lists, item, block.ring(memory));
      case WeightFormat::fp8_block128:
        return down_item<WeightFormat::fp8_block128>(side, block.lists, item, block.ring(memory));
      case WeightFormat::int4_group:
        return down_item<WeightFormat::int4_group>(side, block.lists, item, block.ring(memory));
    }
  });
  wait_for_earlier_kernels();
}

// Experts that can be active.
int64_t active_max(const DecodeParams& p) {
  return std::min(int64_t{p.n_tokens} * p.top_k, p.routed.weights.n_experts);
}

// `shared_bytes` beside the rings and the lists.
void launch_persistent(const Context& context, int64_t n_units, int64_t shared_bytes,
                       void (*kernel)(DecodeParams), const DecodeParams& params) {
  const int64_t n_experts = params.routed.weights.n_experts;
  const int64_t n_pairs = int64_t{params.n_tokens} * params.top_k;
  // The lists' masks and values.
  CHECK(params.n_tokens <= kListTokensMax && std::max(n_pairs, n_experts) <= UINT16_MAX);
  CHECK(making_bytes(n_experts, n_pairs) <= kRingsBytes);
  prefer_shared_memory(kernel);
  const int64_t blocks = std::min<int64_t>(n_units, kBlocksPerSm * context.n_sms);
  launch(context.stream,
         {.grid = dim3(static_cast<unsigned>(blocks)),
          .threads = kThreads,
          .shared_bytes = kRingsBytes + shared_bytes + block_lists_bytes(n_experts, n_pairs)},
         kernel, params);
}

}  // namespace

void launch_ring_gate_up(const Context& context, const DecodeParams& params) {
  CHECK(params.routed.weights.format == kInt4);
  const int64_t n_units = int64_t{params.gate_up.shared} * shared_turns(params) +
                          active_max(params) * params.gate_up.routed / params.unit;
  launch_persistent(context, n_units, 2 * int64_t{sizeof(SharedSums)}, ring_gate_up_kernel, params);
}

void launch_ring_down(const Context& context, const DecodeParams& params) {
  launch_persistent(context, kBlocksPerSm * context.n_sms, 0, ring_down_kernel, params);
}

}  // namespace quire::cuda
