#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_lists.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kWarps = 32;
constexpr int kThreads = kWarps * kWarpSize;  // an expert a thread
constexpr int64_t kSharedBytes = int64_t{48} << 10;
constexpr int64_t kPairsOfBlockMax = (1 << 16) - kThreads;  // counts have 16 bits
// Blocks: one while a warp has a round of 32 pairs or two, else a cluster.
constexpr int64_t kPairsOfOneBlock = int64_t{2} * kThreads;
constexpr int kClusterBlocks = 8;

struct Params {
  const int32_t* experts;  // [n_tokens, top_k]
  int64_t stride;          // elements between tokens
  int n_pairs;
  int pairs_of_warp;  // whole rounds of 32
  int top_k;
  int n_experts;
  ExpertLists lists;
};

// The sum of x over the threads before this one; *total over all.
__device__ int sum_before(int x, int (&shared)[kWarps], int* total) {
  int before = x;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int other = __shfl_up_sync(kFullWarp, before, step);
    if (lane_of_thread() >= step) before += other;
  }
  if (lane_of_thread() == kWarpSize - 1) shared[warp_of_thread()] = before;
  __syncthreads();
  int all = 0;
  int warps_before = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp == warp_of_thread()) warps_before = all;
    all += shared[warp];
  }
  __syncthreads();
  *total = all;
  return warps_before + before - x;
}

// Calls body(pair, expert, lanes of the round with the same expert) for the pairs of a warp, 32 a
// round in order; expert is -1 past the end.
template <class Body>
__device__ void each_round(const Params& p, const Body& body) {
  const int warp = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
  const int begin = warp * p.pairs_of_warp;
  const int end = min(begin + p.pairs_of_warp, p.n_pairs);
  for (int first = begin; first < end; first += kWarpSize) {
    const int pair = first + lane_of_thread();
    const int expert = pair < end ? p.experts[pair / p.top_k * p.stride + pair % p.top_k] : -1;
    body(pair, expert, __match_any_sync(kFullWarp, expert));
    __syncwarp();
  }
}

// What a block keeps: [kWarps, n_experts] counts, then two of [n_experts].
struct SharedLists {
  uint16_t* counts;  // of a warp's pairs by expert; then how many of those come before
  int* totals;       // of the block's pairs by expert
  int* first;        // where the block's pairs of an expert go
};

__device__ SharedLists shared_lists(int n_experts) {
  extern __shared__ int memory[];
  return {reinterpret_cast<uint16_t*>(memory + 2 * n_experts), memory, memory + n_experts};
}

// Counts of the warps become those of the warps before; returns the block's total.
__device__ int sum_over_warps(const SharedLists& shared, int n_experts, int expert) {
  int n = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    uint16_t& at = shared.counts[warp * n_experts + expert];
    const int count = at;
    at = static_cast<uint16_t>(n);
    n += count;
  }
  return n;
}

// A cluster of one block or several, 1,024 threads each; 72 * n_experts bytes of shared memory (27
// KiB of Kimi K2). Each warp counts its pairs by expert, counts are summed over warps, blocks and
// experts, and each warp places its pairs. Moves 12 bytes a pair: bound by latency.
__global__ __launch_bounds__(kThreads) void list_kernel(const __grid_constant__ Params p) {
  __shared__ int shared_sums[kWarps];
  const SharedLists shared = shared_lists(p.n_experts);
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * p.n_experts; i += kThreads) {
    shared.counts[i] = 0;
  }
  __syncthreads();
  uint16_t* mine = shared.counts + warp_of_thread() * p.n_experts;
  const uint32_t lower_lanes = (1U << lane_of_thread()) - 1;
  each_round(p, [&](int, int expert, uint32_t same) {
    if (expert >= 0 && (same & lower_lanes) == 0) {
      mine[expert] = static_cast<uint16_t>(mine[expert] + __popc(same));
    }
  });
  __syncthreads();

  const int e = static_cast<int>(threadIdx.x);
  if (e < p.n_experts) shared.totals[e] = sum_over_warps(shared, p.n_experts, e);
  arrive_at_cluster();
  wait_for_cluster();
  int n = 0;
  int blocks_before = 0;
  if (e < p.n_experts) {
    for (uint32_t block = 0; block < cluster_blocks(); ++block) {
      if (block == cluster_rank()) blocks_before = n;
      n += *in_block(shared.totals + e, block);
    }
  }
  arrive_at_cluster();  // no block ends while others read its totals
  int n_active = 0;
  int n_tiles = 0;
  int n_pairs = 0;
  const int begin = sum_before(n, shared_sums, &n_pairs);
  const int active = sum_before(n > 0 ? 1 : 0, shared_sums, &n_active);
  const int of_expert = (n + p.lists.tile_tokens - 1) / p.lists.tile_tokens;
  int tile = sum_before(of_expert, shared_sums, &n_tiles);
  if (e < p.n_experts) shared.first[e] = begin + blocks_before;
  if (cluster_rank() == 0 && e < p.n_experts) {
    p.lists.begin[e] = begin;
    if (n > 0) p.lists.active[active] = e;
    for (int first = 0; first < n; first += p.lists.tile_tokens) {
      p.lists.tiles[tile++] = {e, first};
    }
  }
  if (cluster_rank() == 0 && e == 0) {
    p.lists.begin[p.n_experts] = n_pairs;
    *p.lists.counts = {n_active, n_tiles};
  }
  __syncthreads();
  each_round(p, [&](int pair, int expert, uint32_t same) {
    const int at = expert >= 0 ? shared.first[expert] + mine[expert] : 0;
    __syncwarp();
    if (expert < 0) return;
    p.lists.pairs[at + __popc(same & lower_lanes)] = pair;
    if ((same & lower_lanes) == 0)
      mine[expert] = static_cast<uint16_t>(mine[expert] + __popc(same));
  });
  wait_for_cluster();
}

int64_t tiles_max(const ListSizes& sizes) {
  return sizes.n_pairs / sizes.tile_tokens + sizes.n_experts;
}

}  // namespace

int64_t lists_bytes(const ListSizes& sizes) {
  return Workspace::bytes_of<int32_t>(sizes.n_pairs) +
         Workspace::bytes_of<int32_t>(sizes.n_experts + 1) +
         Workspace::bytes_of<int32_t>(sizes.n_experts) +
         Workspace::bytes_of<TokenTile>(tiles_max(sizes)) +
         Workspace::bytes_of<ExpertLists::Counts>(1);
}

ExpertLists take_lists(const Context& context, const ListSizes& sizes) {
  Workspace& workspace = *context.workspace;
  return {.pairs = workspace.take<int32_t>(sizes.n_pairs),
          .begin = workspace.take<int32_t>(sizes.n_experts + 1),
          .active = workspace.take<int32_t>(sizes.n_experts),
          .tiles = workspace.take<TokenTile>(tiles_max(sizes)),
          .tile_tokens = sizes.tile_tokens,
          .counts = workspace.take<ExpertLists::Counts>(1)};
}

void list_experts(const Context& context, const View<const int32_t, 2>& experts, int64_t n_experts,
                  const ExpertLists& lists) {
  const unsigned n_blocks = experts.size() <= kPairsOfOneBlock ? 1 : kClusterBlocks;
  const LaunchShape shape{.grid = dim3(n_blocks),
                          .threads = kThreads,
                          .shared_bytes = (int64_t{2} * kWarps + 8) * n_experts,
                          .cluster = n_blocks};
  CHECK(n_experts <= kThreads &&
        shape.shared_bytes + int64_t{sizeof(int)} * kWarps <= kSharedBytes);
  const int64_t pairs_of_warp =
      round_up(div_up(experts.size(), int64_t{kWarps} * n_blocks), kWarpSize);
  CHECK(pairs_of_warp * kWarps <= kPairsOfBlockMax);
  const Params p{.experts = experts.data,
                 .stride = experts.stride[0],
                 .n_pairs = static_cast<int>(experts.size()),
                 .pairs_of_warp = static_cast<int>(pairs_of_warp),
                 .top_k = static_cast<int>(experts[1]),
                 .n_experts = static_cast<int>(n_experts),
                 .lists = lists};
  launch(context.stream, shape, list_kernel, p);
}

}  // namespace quire::cuda
