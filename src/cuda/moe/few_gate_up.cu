#include "cuda/common/launch.cuh"
#include "cuda/moe/few_experts.h"
#include "cuda/moe/few_lists.cuh"
#include "cuda/moe/few_stream.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = kFewWarps * kWarpSize;
constexpr int kTilesAtOnce = 16;  // no warp has steps of more than two of them
constexpr int kRuns = 3;          // of a warp: of the shared expert, and of two tiles
using Ring = StepRing<kFewGateUpSteps>;

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

// What a block works on at once: a part of a tile of the shared expert, and some routed tiles,
// which count through the experts. The block's warps share the steps of each.
struct Round {
  int item;     // tile * shared_parts + part, or -1
  Range tiles;  // at most kTilesAtOnce
};

// Steps of the round's routed tiles, one tile after another, at which a warp begins.
__device__ int first_step(const Round& round, int n_steps, int warp) {
  return round.tiles.size() * n_steps * warp / kFewWarps;
}

// A warp's part of a round: run 0 of the shared expert, runs 1 and 2 of two neighbouring tiles.
struct WarpWork {
  int shared_tile;
  int tile;  // of run 1
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
    const int tile = small_quotient(begin, n_steps);
    const int first = tile * n_steps;
    return {.shared_tile = round.item < 0 ? 0 : small_quotient(round.item, e.shared_parts),
            .tile = round.tiles.begin + tile,
            .steps = {shared_steps(e, round.item),
                      {begin - first, min(end - first, n_steps)},
                      {0, max(end - first - n_steps, 0)}}};
  }
  __device__ StepRun run_of(const FewExperts& e, const FewLists& lists, int run) const {
    const Range range = run == 0 ? steps[0] : run == 1 ? steps[1] : steps[2];
    if (run == 0) return run_of_tile(e.shared.gate_up, 0, shared_tile, range.begin, range.end);
    if (range.size() == 0) return {};
    const int of_expert = e.routed.gate_up.n_groups * kGroupTiles;
    const int at = tile + run - 1;
    const int active = small_quotient(at, of_expert);
    return run_of_tile(e.routed.gate_up, lists.expert[active], at - active * of_expert, range.begin,
                       range.end);
  }
  // The row of inputs of the lane's column.
  __device__ int token_of(const FewExperts& e, const FewLists& lists, int run) const {
    const int column = lane_of_thread() / 4;
    if (run == 0) return min(column, e.choice.n_tokens - 1);
    const int active = small_quotient(tile + run - 1, e.routed.gate_up.n_groups * kGroupTiles);
    return small_quotient(lists.pair[active][min(column, lists.n_rows[active] - 1)],
                          e.choice.top_k);
  }
};

// Sums of the warps: [warp][run][row of tile][column].
using WarpSums = float[kRuns][kTileRows][kFewTokensMax];

__device__ void store_sum(float (&to)[kTileRows][kFewTokensMax], const TileSum& acc) {
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  *reinterpret_cast<float2*>(&to[g][2 * t]) = {acc[0], acc[1]};
  *reinterpret_cast<float2*>(&to[g + 8][2 * t]) = {acc[2], acc[3]};
}

// Multiplies the warp's steps and leaves their sums where the ring was.
__device__ void multiply_runs(const FewExperts& e, const FewLists& lists, const WarpWork& work,
                              SharedRows x, Ring& ring, std::byte* memory) {
  TileSum sums[kRuns] = {};
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    const PackedMatrix& m = run == 0 ? e.shared.gate_up : e.routed.gate_up;
    const Range steps = work.steps[run];
    if (steps.size() == 0) continue;
    const Bf16* at = x.of_lane(work.token_of(e, lists, run)) + steps.begin * m.step_inputs;
    for (int step = steps.begin; step < steps.end; ++step) {
      multiply_in_shared(m.format, ring.wait(), at, sums[run]);
      ring.free();
      ring.bring(kRuns, [&](int i) { return work.run_of(e, lists, i); });
      at += m.step_inputs;
    }
  }
  __syncthreads();
  WarpSums* to = reinterpret_cast<WarpSums*>(memory) + warp_of_thread();
#pragma unroll
  for (int run = 0; run < kRuns; ++run) store_sum((*to)[run], sums[run]);
  __syncthreads();
}

// The warps' sums, in order of the inputs.
__device__ void finish_shared(const FewExperts& e, const Round& round, const WarpSums* sums) {
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

__device__ void finish_routed(const FewExperts& e, const FewLists& lists, const Round& round,
                              const WarpSums* sums) {
  const int n_steps = e.routed.gate_up.n_steps;
  const int of_expert = e.routed.gate_up.n_groups * kGroupTiles;
  const int n_tiles = round.tiles.size();
  for (int i = static_cast<int>(threadIdx.x); i < n_tiles * kInnerOfTile * kFewTokensMax;
       i += kThreads) {
    const int row = i % kInnerOfTile;
    const int column = i / kInnerOfTile % kFewTokensMax;
    const int local = i / (kInnerOfTile * kFewTokensMax);
    const int tile = round.tiles.begin + local;
    const int active = small_quotient(tile, of_expert);
    const int inner = (tile - active * of_expert) * kInnerOfTile + row;
    if (column >= lists.n_rows[active] || inner >= e.gated_stride) continue;
    const Range steps{local * n_steps, (local + 1) * n_steps};
    float gate = 0;
    float up = 0;
    // From the first warp that may have a step of the tile.
    int warp = max(small_quotient(local * kFewWarps, n_tiles) - 1, 0);
    for (; warp < kFewWarps; ++warp) {
      const int begin = first_step(round, n_steps, warp);
      if (begin >= steps.end) break;
      if (first_step(round, n_steps, warp + 1) <= steps.begin) continue;
      const int run = begin >= steps.begin ? 1 : 2;
      gate += sums[warp][run][row][column];
      up += sums[warp][run][row + kInnerOfTile][column];
    }
    reinterpret_cast<bf16*>(e.gated)[lists.pair[active][column] * e.gated_stride + inner] =
        __float2bfloat16_rn(gated(gate, up));
  }
}

// Parts of tiles of the shared expert, and routed tiles, are each cut evenly among the blocks, and
// the steps of a block's among its warps. Steps of the shared expert are read before the choice is
// there. Grid a block a multiprocessor, 512 threads, 140 KiB of shared memory for one token of Kimi
// K2 and 14 more for each other. Moves the weights once: bound by memory, for one token by latency.
__global__ __launch_bounds__(kThreads,
                             2) void few_gate_up_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ FewLists lists;
  __shared__ Barrier has_x;
  const FewExperts& e = p.experts;
  const SharedRows x{reinterpret_cast<Bf16*>(memory + kFewGateUpSteps * kFewWarps * kFewStepBytes),
                     p.x_pitch};
  const int block = static_cast<int>(blockIdx.x);
  const int n_blocks = static_cast<int>(gridDim.x);
  const Range items =
      part({0, e.shared.gate_up.n_groups * kGroupTiles * e.shared_parts}, block, n_blocks);
  Round round{.item = items.size() > 0 ? items.begin : -1, .tiles = {0, 0}};
  WarpWork work = WarpWork::of(e, round);
  const auto run_of = [&](int i) { return work.run_of(e, lists, i); };
  Ring ring(memory);
  // Before anything is known: the first round's steps of the shared expert.
  int brought = min(work.steps[0].size(), kFewGateUpSteps);
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
  const Range tiles =
      part({0, lists.n_active * e.routed.gate_up.n_groups * kGroupTiles}, block, n_blocks);
  int item = items.begin;
  int tile = tiles.begin;
  for (;;) {
    round = {.item = item < items.end ? item : -1,
             .tiles = {tile, min(tile + kTilesAtOnce, tiles.end)}};
    work = WarpWork::of(e, round);
    for (int i = brought; i < kFewGateUpSteps; ++i) ring.bring(kRuns, run_of);
    barrier_wait(&has_x, 0);
    multiply_runs(e, lists, work, x, ring, memory);
    const auto* sums = reinterpret_cast<const WarpSums*>(memory);
    finish_shared(e, round, sums);
    finish_routed(e, lists, round, sums);
    ++item;
    tile = round.tiles.end;
    if (item >= items.end && tile >= tiles.end) break;
    __syncthreads();
    ring = Ring(memory);
    brought = 0;
  }
}

}  // namespace

void launch_few_gate_up(const Context& context, const FewExpertsPlan& plan,
                        const FewExperts& experts) {
  CUDA_MUST(cudaFuncSetAttribute(few_gate_up_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(context.n_sms)),
                          .threads = kThreads,
                          .shared_bytes = plan.gate_up_shared_bytes};
  launch(context.stream, shape, few_gate_up_kernel,
         Params{.experts = experts, .x_pitch = static_cast<int>(few_row_pitch(experts.x.n_in))});
}

}  // namespace quire::cuda
