#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_lists.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kWarpsMax = 32;
constexpr int kThreadsMax = kWarpsMax * kWarpSize;
constexpr int kFewWarps = 16;  // of a block where one is enough
constexpr int64_t kSharedBytes = int64_t{48} << 10;
constexpr int64_t kPairsOfBlockMax = (1 << 16) - kThreadsMax;  // counts have 16 bits
// Blocks: one while a warp has four rounds of 32 pairs, else a cluster.
constexpr int64_t kPairsOfOneBlock = int64_t{4} * kFewWarps * kWarpSize;
constexpr int kClusterBlocks = 8;

struct Params {
  const int32_t* experts;  // [n_tokens, top_k]
  int64_t stride;          // elements between tokens
  int n_pairs;
  int pairs_of_warp;  // whole rounds of 32
  int n_warps;        // of a block that have pairs
  int top_k;
  int n_experts;
  ExpertLists lists;
};

// What is added up over experts, or over those before one.
struct Totals {
  uint64_t packed;  // 32 bits of pairs, 32 of tiles

  __device__ static Totals of(int n_pairs, int n_tiles) {
    return {static_cast<uint64_t>(n_pairs) | static_cast<uint64_t>(n_tiles) << 32};
  }
  __device__ int pairs() const { return static_cast<int>(packed & 0xffffffffU); }
  __device__ int tiles() const { return static_cast<int>(packed >> 32); }
};

// The sum over the threads before this one; *total over all.
__device__ Totals sum_before(Totals own, uint64_t (&shared)[kWarpsMax], Totals* total) {
  uint64_t before = own.packed;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const uint64_t other = __shfl_up_sync(kFullWarp, before, step);
    if (lane_of_thread() >= step) before += other;
  }
  if (lane_of_thread() == kWarpSize - 1) shared[warp_of_thread()] = before;
  __syncthreads();
  uint64_t all = 0;
  uint64_t warps_before = 0;
  const int n_warps = static_cast<int>(blockDim.x) / kWarpSize;
  for (int warp = 0; warp < n_warps; ++warp) {
    if (warp == warp_of_thread()) warps_before = all;
    all += shared[warp];
  }
  *total = {all};
  return {warps_before + before - own.packed};
}

// Calls body(pair, expert, lanes of the round with the same expert) for the pairs of a warp, 32 a
// round in order; expert is -1 past the end.
template <class Body>
__device__ void each_round(const Params& p, const Body& body) {
  if (warp_of_thread() >= p.n_warps) return;
  const int warp = static_cast<int>(blockIdx.x) * p.n_warps + warp_of_thread();
  const int begin = warp * p.pairs_of_warp;
  const int end = min(begin + p.pairs_of_warp, p.n_pairs);
  for (int first = begin; first < end; first += kWarpSize) {
    const int pair = first + lane_of_thread();
    const int expert = pair < end ? p.experts[pair / p.top_k * p.stride + pair % p.top_k] : -1;
    body(pair, expert, __match_any_sync(kFullWarp, expert));
    __syncwarp();
  }
}

// What a block keeps: two of [n_experts], then [n_warps, n_experts] counts.
struct SharedLists {
  int* totals;       // of the block's pairs by expert
  int* first;        // where the block's pairs of an expert go
  uint16_t* counts;  // of a warp's pairs by expert; then how many of those come before
};

__device__ SharedLists shared_lists(int n_experts) {
  extern __shared__ int memory[];
  return {memory, memory + n_experts, reinterpret_cast<uint16_t*>(memory + 2 * n_experts)};
}

// Counts of the warps become those of the warps before; returns the block's total.
__device__ int sum_over_warps(const Params& p, const SharedLists& shared, int expert) {
  int n = 0;
  for (int warp = 0; warp < p.n_warps; ++warp) {
    uint16_t& at = shared.counts[warp * p.n_experts + expert];
    const int count = at;
    at = static_cast<uint16_t>(n);
    n += count;
  }
  return n;
}

__device__ void write_lists(const ExpertLists& lists, int expert, int n, const Totals& before) {
  lists.begin[expert] = before.pairs();
  int tile = before.tiles();
  for (int first = 0; first < n; first += lists.tile_tokens) lists.tiles[tile++] = {expert, first};
}

// A cluster of one block or several, 512 or 1,024 threads each, an expert a thread; up to 72 *
// n_experts bytes of shared memory (27 KiB of Kimi K2). Each warp counts its pairs by expert,
// counts are summed over warps, blocks and experts, and each warp places its pairs. Moves 12 bytes
// a pair: bound by latency.
__global__ __launch_bounds__(kThreadsMax) void list_kernel(const __grid_constant__ Params p) {
  __shared__ uint64_t sums[kWarpsMax];
  const SharedLists shared = shared_lists(p.n_experts);
  for (int i = static_cast<int>(threadIdx.x); i < p.n_warps * p.n_experts;
       i += static_cast<int>(blockDim.x)) {
    shared.counts[i] = 0;
  }
  __syncthreads();
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  uint16_t* mine = shared.counts + warp_of_thread() * p.n_experts;
  const uint32_t lower_lanes = (1U << lane_of_thread()) - 1;
  each_round(p, [&](int, int expert, uint32_t same) {
    if (expert >= 0 && (same & lower_lanes) == 0) {
      mine[expert] = static_cast<uint16_t>(mine[expert] + __popc(same));
    }
  });
  __syncthreads();

  const int e = static_cast<int>(threadIdx.x);
  if (e < p.n_experts) shared.totals[e] = sum_over_warps(p, shared, e);
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
  const int tile_tokens = p.lists.tile_tokens;
  Totals total{};
  const Totals before =
      sum_before(Totals::of(n, (n + tile_tokens - 1) / tile_tokens), sums, &total);
  if (e < p.n_experts) {
    shared.first[e] = before.pairs() + blocks_before;
    if (cluster_rank() == 0) write_lists(p.lists, e, n, before);
  }
  if (cluster_rank() == 0 && e == 0) {
    p.lists.begin[p.n_experts] = total.pairs();
    *p.lists.n_tiles = total.tiles();
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
         Workspace::bytes_of<TokenTile>(tiles_max(sizes)) + Workspace::bytes_of<int32_t>(1);
}

ExpertLists take_lists(const Context& context, const ListSizes& sizes) {
  Workspace& workspace = *context.workspace;
  return {.pairs = workspace.take<int32_t>(sizes.n_pairs),
          .begin = workspace.take<int32_t>(sizes.n_experts + 1),
          .tiles = workspace.take<TokenTile>(tiles_max(sizes)),
          .tile_tokens = sizes.tile_tokens,
          .n_tiles = workspace.take<int32_t>(1)};
}

void list_experts(const Context& context, const View<const int32_t, 2>& experts, int64_t n_experts,
                  const ExpertLists& lists) {
  const bool is_one_block = experts.size() <= kPairsOfOneBlock;
  const int64_t n_blocks = is_one_block ? 1 : kClusterBlocks;
  const int64_t warps_max =
      is_one_block && n_experts <= kFewWarps * kWarpSize ? kFewWarps : kWarpsMax;
  const int64_t pairs_of_warp =
      round_up(std::max<int64_t>(div_up(experts.size(), warps_max * n_blocks), 1), kWarpSize);
  const int64_t n_warps =
      is_one_block ? std::max<int64_t>(div_up(experts.size(), pairs_of_warp), 1) : warps_max;
  CHECK(pairs_of_warp * n_warps <= kPairsOfBlockMax);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_blocks)),
                          .threads = static_cast<unsigned>(warps_max * kWarpSize),
                          .shared_bytes = (2 * n_warps + 8) * n_experts,
                          .cluster = static_cast<unsigned>(n_blocks)};
  CHECK(n_experts <= shape.threads);
  CHECK(shape.shared_bytes + int64_t{sizeof(uint64_t)} * kWarpsMax <= kSharedBytes);
  const Params p{.experts = experts.data,
                 .stride = experts.stride[0],
                 .n_pairs = static_cast<int>(experts.size()),
                 .pairs_of_warp = static_cast<int>(pairs_of_warp),
                 .n_warps = static_cast<int>(n_warps),
                 .top_k = static_cast<int>(experts[1]),
                 .n_experts = static_cast<int>(n_experts),
                 .lists = lists};
  launch(context.stream, shape, list_kernel, p);
}

}  // namespace quire::cuda
