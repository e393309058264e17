#include "cuda/common/launch.cuh"
#include "cuda/moe/few_experts.h"
#include "cuda/moe/few_lists.cuh"
#include "cuda/moe/few_stream.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = kFewWarps * kWarpSize;
constexpr int kUnitsAtOnce = 16;  // no warp has steps of more than two of them
constexpr int kRuns = 3;          // of a warp: of the shared expert, and of two units

struct Params {
  FewExperts experts;
  int x_pitch;
};

struct Range {
  int begin, end;

  __device__ int size() const { return end - begin; }
};

// Part `i` of n of a range.
__device__ Range part(Range range, int i, int n) {
  return {range.begin + small_quotient(range.size() * i, n),
          range.begin + small_quotient(range.size() * (i + 1), n)};
}

// What a block works on at once: a part of a tile of the shared expert, and some routed units of
// kTiles tiles, which count through the experts. The block's warps share the steps of each.
struct Round {
  int item;     // tile * shared_parts + part, or -1
  Range units;  // at most kUnitsAtOnce
};

// Steps of the round's routed units, one unit after another, at which a warp begins.
__device__ int first_step(const Round& round, int n_steps, int warp) {
  return round.units.size() * n_steps * warp / kFewWarps;
}

template <int kTiles>
__device__ int units_of_expert(const FewExperts& e) {
  return e.routed.gate_up.n_groups * (kGroupTiles / kTiles);
}

// A warp's part of a round: run 0 of the shared expert, runs 1 and 2 of two neighbouring units.
template <int kTiles>
struct WarpWork {
  int shared_tile;
  int unit;  // of run 1
  Range steps[kRuns];

  __device__ static Range shared_steps(const FewExperts& e, int item) {
    if (item < 0) return {0, 0};
    const int of_tile = item - small_quotient(item, e.shared_parts) * e.shared_parts;
    const Range all = part({0, e.shared.gate_up.n_steps}, of_tile, e.shared_parts);
    return part(all, warp_of_thread(), kFewWarps);
  }
  __device__ static WarpWork of(const FewExperts& e, const Round& round) {
    const int n_steps = e.routed.gate_up.n_steps;
    const int begin = first_step(round, n_steps, warp_of_thread());
    const int end = first_step(round, n_steps, warp_of_thread() + 1);
    const int unit = small_quotient(begin, n_steps);
    const int first = unit * n_steps;
    return {.shared_tile = round.item < 0 ? 0 : small_quotient(round.item, e.shared_parts),
            .unit = round.units.begin + unit,
            .steps = {shared_steps(e, round.item),
                      {begin - first, min(end - first, n_steps)},
                      {0, max(end - first - n_steps, 0)}}};
  }
  __device__ StepRun run_of(const FewExperts& e, const FewLists& lists, int run) const {
    const Range range = run == 0 ? steps[0] : run == 1 ? steps[1] : steps[2];
    if (run == 0) {
      return run_of_tiles(e.shared.gate_up, 0, shared_tile, 1, range.begin, range.end);
    }
    if (range.size() == 0) return {};
    const int of_expert = units_of_expert<kTiles>(e);
    const int at = unit + run - 1;
    const int active = small_quotient(at, of_expert);
    return run_of_tiles(e.routed.gate_up, lists.expert[active], (at - active * of_expert) * kTiles,
                        kTiles, range.begin, range.end);
  }
  // The row of inputs of the lane's column.
  __device__ int token_of(const FewExperts& e, const FewLists& lists, int run) const {
    const int column = lane_of_thread() / 4;
    if (run == 0) return min(column, e.choice.n_tokens - 1);
    const int active = small_quotient(unit + run - 1, units_of_expert<kTiles>(e));
    return small_quotient(lists.pair[active][min(column, lists.n_rows[active] - 1)],
                          e.choice.top_k);
  }
};

// What a warp sums up of a tile: [row of tile][column].
using TileColumns = float[kTileRows][kFewTokensMax];

// Of the warps: of the shared expert's tile, then of the tiles of runs 1 and 2.
template <int kTiles>
using WarpSums = TileColumns[1 + (kRuns - 1) * kTiles];

__device__ void store_sum(TileColumns& to, const TileSum& acc) {
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  *reinterpret_cast<float2*>(&to[g][2 * t]) = {acc[0], acc[1]};
  *reinterpret_cast<float2*>(&to[g + 8][2 * t]) = {acc[2], acc[3]};
}

// Multiplies the warp's steps and leaves their sums where the ring was.
template <int kTiles, class Ring>
__device__ void multiply_runs(const FewExperts& e, const FewLists& lists,
                              const WarpWork<kTiles>& work, SharedRows x, Ring& ring,
                              std::byte* memory) {
  TileSum shared_sum[1] = {};
  TileSum sums[kRuns - 1][kTiles] = {};
  const auto bring = [&] { ring.bring(kRuns, [&](int i) { return work.run_of(e, lists, i); }); };
  const auto multiply = [&](const PackedMatrix& m, int run, auto& acc) {
    const Range steps = work.steps[run];
    if (steps.size() == 0) return;
    const Bf16* at = x.of_lane(work.token_of(e, lists, run)) + steps.begin * m.step_inputs;
    if constexpr (kTiles == 1) {
      multiply_run_beside(m, ring, steps.size(), at, acc, bring);
    } else {
      multiply_run(m, ring, steps.size(), at, acc, bring);
    }
  };
  multiply(e.shared.gate_up, 0, shared_sum);
#pragma unroll
  for (int run = 1; run < kRuns; ++run) multiply(e.routed.gate_up, run, sums[run - 1]);
  __syncthreads();
  static_assert(kFewWarps * sizeof(WarpSums<kTiles>) <= Ring::kAllBytes);
  WarpSums<kTiles>& to = reinterpret_cast<WarpSums<kTiles>*>(memory)[warp_of_thread()];
  store_sum(to[0], shared_sum[0]);
#pragma unroll
  for (int i = 0; i < (kRuns - 1) * kTiles; ++i) store_sum(to[1 + i], sums[i / kTiles][i % kTiles]);
  __syncthreads();
}

// The warps' sums, in order of the inputs.
template <int kTiles>
__device__ void finish_shared(const FewExperts& e, const Round& round,
                              const WarpSums<kTiles>* sums) {
  const int i = static_cast<int>(threadIdx.x);
  const int row = i % kTileRows;
  const int token = i / kTileRows;
  if (round.item < 0 || token >= e.choice.n_tokens) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kFewWarps; ++warp) sum += sums[warp][0][row][token];
  const int tiles = e.shared.gate_up.n_groups * kGroupTiles;
  const int tile = small_quotient(round.item, e.shared_parts);
  const int of_tile = round.item - tile * e.shared_parts;
  const int64_t at = int64_t{of_tile} * e.choice.n_tokens + token;
  e.shared_sums[(at * tiles + tile) * kTileRows + row] = sum;
}

template <int kTiles>
__device__ void finish_routed(const FewExperts& e, const FewLists& lists, const Round& round,
                              const WarpSums<kTiles>* sums) {
  const int n_steps = e.routed.gate_up.n_steps;
  const int of_expert = e.routed.gate_up.n_groups * kGroupTiles;
  const int n_units = round.units.size();
  for (int i = static_cast<int>(threadIdx.x); i < n_units * kTiles * kInnerOfTile * kFewTokensMax;
       i += kThreads) {
    const int row = i % kInnerOfTile;
    const int column = i / kInnerOfTile % kFewTokensMax;
    const int local_tile = i / (kInnerOfTile * kFewTokensMax);
    const int local = local_tile / kTiles;
    const int tile = round.units.begin * kTiles + local_tile;
    const int active = small_quotient(tile, of_expert);
    const int inner = (tile - active * of_expert) * kInnerOfTile + row;
    if (column >= lists.n_rows[active] || inner >= e.gated_stride) continue;
    const Range steps{local * n_steps, (local + 1) * n_steps};
    float gate = 0;
    float up = 0;
    // From the first warp that may have a step of the unit.
    int warp = max(small_quotient(local * kFewWarps, n_units) - 1, 0);
    for (; warp < kFewWarps; ++warp) {
      const int begin = first_step(round, n_steps, warp);
      if (begin >= steps.end) break;
      if (first_step(round, n_steps, warp + 1) <= steps.begin) continue;
      const int of_run = begin >= steps.begin ? 0 : kTiles;
      const TileColumns& sum = sums[warp][1 + of_run + local_tile % kTiles];
      gate += sum[row][column];
      up += sum[row + kInnerOfTile][column];
    }
    reinterpret_cast<bf16*>(e.gated)[lists.pair[active][column] * e.gated_stride + inner] =
        __float2bfloat16_rn(gated(gate, up));
  }
}

// Parts of tiles of the shared expert, and routed units, are each cut evenly among the blocks, and
// the steps of a block's among its warps. Steps of the shared expert are read before the choice is
// there. Grid a block a multiprocessor, 512 threads, shared memory for Kimi K2: 140 KiB for one
// token, else 108 and 14 for each. Moves the weights once: bound by memory, for one token by
// latency.
template <bool kIsBeside, int kBlocksOfSm = kIsBeside ? 2 : 1>
__global__ __launch_bounds__(kThreads, kBlocksOfSm) void few_gate_up_kernel(
    const __grid_constant__ Params p) {
  constexpr FewCut kCut = kIsBeside ? kFewGateUpBeside : kFewGateUpAlone;
  constexpr int kTiles = kCut.tiles;
  using Ring = StepRing<kCut, /*kIsUniform=*/kTiles == 1>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ FewLists lists;
  __shared__ Barrier has_x;
  const FewExperts& e = p.experts;
  const SharedRows x{reinterpret_cast<Bf16*>(memory + Ring::kAllBytes), p.x_pitch};
  const int block = static_cast<int>(blockIdx.x);
  const int n_blocks = static_cast<int>(gridDim.x);
  const Range items =
      part({0, e.shared.gate_up.n_groups * kGroupTiles * e.shared_parts}, block, n_blocks);
  Round round{.item = items.size() > 0 ? items.begin : -1, .units = {0, 0}};
  auto work = WarpWork<kTiles>::of(e, round);
  const auto run_of = [&](int i) { return work.run_of(e, lists, i); };
  Ring ring(memory);
  // Before anything is known: the first round's steps of the shared expert.
  int brought = min(work.steps[0].size(), kCut.steps);
  for (int i = 0; i < brought; ++i) ring.bring(1, run_of);
  if (threadIdx.x == 0) {
    barrier_init(&has_x, kThreads);
    barrier_init_done();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const FewChosen chosen = FewChosen::load(e.choice);
  for (int row = 0; row < e.choice.n_tokens; ++row) {
    x.copy(e.x, row, static_cast<int>(threadIdx.x), kThreads);
  }
  barrier_arrive_when_copied(&has_x);
  list_few(chosen, lists);
  __syncthreads();
  const Range units = part({0, lists.n_active * units_of_expert<kTiles>(e)}, block, n_blocks);
  int item = items.begin;
  int unit = units.begin;
  for (;;) {
    round = {.item = item < items.end ? item : -1,
             .units = {unit, min(unit + kUnitsAtOnce, units.end)}};
    work = WarpWork<kTiles>::of(e, round);
    for (int i = brought; i < kCut.steps; ++i) ring.bring(kRuns, run_of);
    barrier_wait(&has_x, 0);
    multiply_runs(e, lists, work, x, ring, memory);
    const auto* sums = reinterpret_cast<const WarpSums<kTiles>*>(memory);
    finish_shared<kTiles>(e, round, sums);
    finish_routed<kTiles>(e, lists, round, sums);
    ++item;
    unit = round.units.end;
    if (item >= items.end && unit >= units.end) break;
    __syncthreads();
    ring = Ring(memory);
    brought = 0;
  }
}

void launch_kernel(const Context& context, const FewExpertsPlan& plan, const FewExperts& experts,
                   void (*kernel)(Params)) {
  prefer_shared_memory(kernel);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(context.n_sms)),
                          .threads = kThreads,
                          .shared_bytes = plan.gate_up_shared_bytes};
  launch(context.stream, shape, kernel,
         Params{.experts = experts, .x_pitch = static_cast<int>(few_row_pitch(experts.x.n_in))});
}

}  // namespace

void launch_few_gate_up(const Context& context, const FewExpertsPlan& plan,
                        const FewExperts& experts) {
  launch_kernel(context, plan, experts,
                plan.is_beside ? few_gate_up_kernel<true> : few_gate_up_kernel<false>);
}

}  // namespace quire::cuda
