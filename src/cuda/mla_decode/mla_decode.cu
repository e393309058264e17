#include <algorithm>
#include <cuda/atomic>

#include "base/bytes.h"
#include "base/check.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/mla_decode/combine.cuh"
#include "cuda/mla_decode/combine_parts.h"
#include "cuda/mla_decode/group_sums.cuh"
#include "cuda/mla_decode/mla_decode.h"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kGroups = 2;
constexpr int kProducerWarp = kGroups * kGroupWarps;  // its group is there to give up registers
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kRegisters = 168;  // 65,536 / kThreads, in eights: what every warp begins with
constexpr int kProducerRegisters = 24;
constexpr int kConsumerRegisters = kRegisters + (kRegisters - kProducerRegisters) / kGroups;
constexpr float kLog2E = 1.4426950408889634F;

struct Params {
  PagedBlocks kv;
  SplitPlan plan;
  const int32_t* row;        // [n_tokens] row of the page table
  const bf16* q_latent;      // [n_tokens, n_heads, 512]
  const bf16* q_rope;        // [n_tokens, n_heads, 64]
  int64_t latent_stride[2];  // elements between tokens, between heads
  int64_t rope_stride[2];
  DecodeOutput out;
  PartialSums partial;
  // [share, head group, 2] of the token cut behind a share: arrived, departed.
  int32_t* tickets;
  float factor;  // of scores, in units of log2
  // Positions, tables and all rows but a token's own were there before the kernel ahead began.
  bool history_is_settled;
};

template <KvFormat kFormat>
struct Shared {
  static constexpr int kStages = PageShape<kFormat>::kStages;

  alignas(128) std::byte pages[kStages][StagedPage<kFormat>::kBytes];
  GroupExchange exchange[kGroups];
  // Copies end in any order, and a group waits only for its own: with one barrier for both it could
  // take an earlier phase of the other group's page for the one it waits for.
  Barrier full[kGroups][kStages];
  Barrier query[kStages];  // the same, of a query: both groups wait for it
  Barrier empty[kStages];
  // Group 1 has left its sums; group 0 has taken them. Every thread arrives for itself, as
  // racecheck wants it (docs/kernels/mla_decode.md): once a part, which costs nothing.
  Barrier left;
  Barrier taken;
};

// A place in the ring of stages, and which time round.
template <int kStages>
struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// A stage that was used is free: a query's is when all warps of both groups say so, a page's when
// those of one group do, twice each.
__device__ inline void leave_query(Barrier* empty) {
  __syncwarp();
  if (lane_of_thread() == 0) barrier_arrive(empty);
}
__device__ inline void leave_page(Barrier* empty) {
  __syncwarp();
  if (lane_of_thread() < kGroups) barrier_arrive(empty);
}

// The query of a token into a stage, by one warp.
template <KvFormat kFormat>
__device__ void copy_query(const Params& p, Shared<kFormat>& s, int stage, int token,
                           int head_group) {
  const int lane = lane_of_thread();
  if (lane == 0) barrier_expect_bytes(&s.query[stage], kHeadTile * kQueryRowBytes);
  __syncwarp();
  if (lane >= 2 * kHeadTile) return;
  const bool is_latent = lane < kHeadTile;
  const bf16* from = is_latent ? p.q_latent : p.q_rope;
  const int64_t* stride = is_latent ? p.latent_stride : p.rope_stride;
  // Rows past the last head repeat it: their results are not stored.
  const int head = min(kHeadTile * head_group + lane % kHeadTile, p.out.n_heads - 1);
  bulk_copy(s.pages[stage] + lane % kHeadTile * kQueryRowStride + (is_latent ? 0 : 2 * kLatentDim),
            reinterpret_cast<const std::byte*>(from + token * stride[0] + head * stride[1]),
            2 * (is_latent ? kLatentDim : kRopeDim), &s.query[stage]);
}

// A page into a stage, by one warp: its first `rows` rows. Where those are not all, the row behind
// them is announced with them, and comes by copy_own_row.
template <KvFormat kFormat>
__device__ void copy_page(const std::byte* block, int rows, std::byte* stage, Barrier* full) {
  using Shape = PageShape<kFormat>;
  constexpr int kTokens = StagedPage<kFormat>::kSegmentTokens;
  const int lane = lane_of_thread();
  const bool is_whole = rows == kPageTokens;
  const int scale_bytes = is_whole ? Shape::kTailBytes : rows / 2 * Shape::kScalePairBytes;
  if (lane == 0) {
    const int own_bytes = is_whole ? 0 : Shape::kRowBytes + Shape::kScalePairBytes;
    barrier_expect_bytes(full,
                         static_cast<uint32_t>(rows * Shape::kRowBytes + scale_bytes + own_bytes));
  }
  __syncwarp();
  // A segment a lane. Scales lie behind the last one, and come with it if that is whole.
  std::byte* to = stage + lane * kSegmentStride;
  int bytes = 0;
  if (lane < Shape::kSegments) {
    bytes = min(max(rows - lane * kTokens, 0), kTokens) * Shape::kRowBytes;
    if (lane == Shape::kSegments - 1 && is_whole) bytes += scale_bytes;
  } else if (lane == Shape::kSegments && !is_whole) {
    to -= kSegmentStride - kSegmentBytes;
    bytes = scale_bytes;
  }
  if (bytes > 0) {
    bulk_copy_once(to, block + lane * kSegmentBytes, static_cast<uint32_t>(bytes), full);
  }
}

// The row that the token's own step wrote, by one warp. The scales of its pair come with it: the
// other token's are of an earlier step, or of a token that does not count.
template <KvFormat kFormat>
__device__ void copy_own_row(const std::byte* block, int slot, std::byte* stage, Barrier* full) {
  using Shape = PageShape<kFormat>;
  const StagedPage<kFormat> page{stage};
  const int lane = lane_of_thread();
  if (lane == 0) bulk_copy(page.row(slot), block + slot * Shape::kRowBytes, Shape::kRowBytes, full);
  if (Shape::kScalePairBytes > 0 && lane == 1) {
    const int pair = slot / 2;
    bulk_copy(reinterpret_cast<std::byte*>(page.scales(2 * pair)),
              block + kPageTokens * Shape::kRowBytes + pair * Shape::kScalePairBytes,
              Shape::kScalePairBytes, full);
  }
}

// One warp copies the block's queries and pages, in order, into the stages as they become free. The
// first query is left to its readers (fetch_query). In a step whose history is settled, all of a
// page but a token's own row is copied while the kernels ahead still run.
template <KvFormat kFormat>
__device__ void produce(const Params& p, Shared<kFormat>& s, const Share& share, int head_group) {
  using Shape = PageShape<kFormat>;
  const int lane = lane_of_thread();
  Turn<Shape::kStages> turn;
  PartWalk walk(p.plan, share);
  Part part;
  int loaded = -1;  // token
  bool is_waiting = true;
  // Once, and before it ends (grid_dependency.cuh).
  const auto wait_once = [&] {
    if (is_waiting) wait_for_earlier_kernels();
    is_waiting = false;
  };
  while (walk.next(&part)) {
    const int32_t* table = p.kv.table + p.row[part.token] * p.kv.table_stride;
    if (loaded != part.token) {
      // The stage of the first query is not waited for: its readers may have left it already, and
      // this warp, a phase behind, would wait for the next time.
      if (loaded >= 0) {
        barrier_wait(&s.empty[turn.stage], turn.phase ^ 1);
        wait_once();
        copy_query(p, s, turn.stage, part.token, head_group);
      }
      loaded = part.token;
      turn.next();
    }
    const int position = p.plan.position[part.token];
    const int own_page = p.history_is_settled && position >= 0 ? position / kPageTokens : -1;
    int32_t pages = 0;  // of the 32 from `page` on, one a lane
#pragma unroll 1
    for (int page = part.page_begin; page < part.page_end; ++page, turn.next()) {
      const int in_batch = (page - part.page_begin) % kWarpSize;
      if (in_batch == 0 && page + lane < part.page_end) pages = table[page + lane];
      const int64_t physical =
          min(max(int64_t{__shfl_sync(kFullWarp, pages, in_batch)}, int64_t{0}), p.kv.n_pages - 1);
      const std::byte* block = p.kv.block(physical);
      std::byte* stage = s.pages[turn.stage];
      Barrier* full = &s.full[(page - part.page_begin) % kGroups][turn.stage];
      barrier_wait(&s.empty[turn.stage], turn.phase ^ 1);
      if (page != own_page) {
        copy_page<kFormat>(block, kPageTokens, stage, full);
        continue;
      }
      copy_page<kFormat>(block, position % kPageTokens, stage, full);
      wait_once();
      copy_own_row<kFormat>(block, position % kPageTokens, stage, full);
    }
  }
  wait_once();
}

__device__ inline int32_t* tickets_of(const Params& p, const TokenParts& parts, int head_group) {
  return p.tickets + 2 * (parts.first * p.partial.n_head_groups + head_group);
}

// A part that is all of its token is the result; others leave their sums in device memory.
template <KvFormat kFormat>
__device__ void write_sums(const Params& p, const Part& part, int head_group, float power,
                           const Sums& sums) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const float factor[2] = {power, power};
  if (p.plan.cut == Cut::fixed && part.page_begin == 0 && head_group == 0 && thread == 0) {
    p.partial.parts[part.token] = part.of_token;
  }
  if (part.of_token.n_parts == 1) {
    const OutputRows<kFormat> rows(p.out, part.token, head_group, thread,
                                   {sums.total[0], sums.total[1]});
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      rows.store(latent_of_vector(thread) + 16 * tile, vector_of(sums, tile, factor));
    }
    return;
  }
  const int64_t index = part.index * p.partial.n_head_groups + head_group;
  float4* to = p.partial.out + index * kSumVectors + thread;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    store_float4(to + tile * kGroupThreads, vector_of(sums, tile, factor), p.partial.policy());
  }
  if (thread < 4) {
    for (int j = 0; j < 2; ++j) {
      p.partial.softmax[index * kHeadTile + 2 * thread + j] = {sums.largest[j], sums.total[j]};
    }
  }
  if (p.plan.cut == Cut::even) {
    group_sync(0);
    if (thread == 0) {
      ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(
          *tickets_of(p, part.of_token, head_group));
      arrived.fetch_add(1, ::cuda::memory_order_release);
    }
  }
}

// Some of the output of a token that was cut: as soon as all of its parts are there, every block
// that had one adds up its share of the latents. The blocks of a launch all fit the device at once,
// so that waiting for each other ends. By group `index` of the block's `n_groups` that do this.
template <KvFormat kFormat>
__device__ void finish_token(const Params& p, const Part& part, int share, int head_group,
                             int index, int n_groups, CombineScratch* scratch) {
  const TokenParts parts = part.of_token;
  int32_t* tickets = tickets_of(p, parts, head_group);
  const int group = warp_of_thread() / kGroupWarps;
  const int halves = kGroups / n_groups;  // of a block
  int departed = 0;                       // halves, when this one is among them
  if (threadIdx.x % kGroupThreads == 0) {
    ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(tickets[0]);
    while (arrived.load(::cuda::memory_order_acquire) < parts.n_parts) {
    }
    // It will not look again. The answer is needed in the end.
    departed = atomicAdd(&tickets[1], halves) + halves;
  }
  group_sync(group);
  constexpr int kQuads = kSumVectors / 4;
  const int i = (share - parts.first) * n_groups + index;
  const int n = parts.n_parts * n_groups;
  combine_slice<kFormat>(p.partial, p.out,
                         {.token = part.token,
                          .parts = parts,
                          .begin = 4 * (kQuads * i / n),
                          .end = 4 * (kQuads * (i + 1) / n)},
                         head_group, group, scratch);
  if (departed == kGroups * parts.n_parts) {
    tickets[0] = tickets[1] = 0;  // as the next launch wants them
  }
}

// The query of the head that the warp has, as the kernel ahead left it.
__device__ inline QueryRow fetch_query(const Params& p, int token, int head_group) {
  const int lane = lane_of_thread();
  // Rows past the last head repeat it: their results are not stored.
  const int64_t head = min(kHeadTile * head_group + warp_of_thread(), p.out.n_heads - 1);
  const auto* latent = reinterpret_cast<const uint4*>(p.q_latent + token * p.latent_stride[0] +
                                                      head * p.latent_stride[1]);
  const auto* rope = reinterpret_cast<const uint32_t*>(p.q_rope + token * p.rope_stride[0] +
                                                       head * p.rope_stride[1]);
  return {{__ldcg(latent + lane), __ldcg(latent + kWarpSize + lane)}, __ldcg(rope + lane)};
}

// Where a query lies in the ring.
struct QueryTurn {
  int stage;
  uint32_t phase;  // of its barrier
  bool is_first;   // of the block: nobody copies it
};

// A token's query, a head a warp on its way: a block's first by loads, which take half as long as a
// copy; later ones out of the stage that the copying warp filled.
template <KvFormat kFormat>
__device__ Query take_query(const Params& p, Shared<kFormat>& s, int token, int head_group,
                            const QueryTurn& turn) {
  static_assert(kGroups * kGroupWarps == kHeadTile);
  std::byte* rows = s.pages[turn.stage];
  std::byte* row = rows + warp_of_thread() * kQueryRowStride;
  if (!turn.is_first) barrier_wait(&s.query[turn.stage], turn.phase);
  if (turn.is_first || kFormat != KvFormat::bf16) {
    QueryRow of_head = turn.is_first ? fetch_query(p, token, head_group) : read_query(row);
    if constexpr (kFormat != KvFormat::bf16) convert_query(&of_head, row);
    write_query(of_head, row);
    both_groups_sync();
  }
  Query query;
  load_query<kFormat>(rows, p.factor, &query);
  fence_async_proxy();  // before a page is copied over it
  leave_query(&s.empty[turn.stage]);
  return query;
}

// A group takes every second page of a part, group 0 the first; then it takes the other's sums.
template <KvFormat kFormat>
__device__ void consume(const Params& p, Shared<kFormat>& s, const Share& share, int head_group) {
  const int group = warp_of_thread() / kGroupWarps;
  const int lane = lane_of_thread();
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  GroupExchange* exchange = &s.exchange[group];
  Turn<PageShape<kFormat>::kStages> turn;
  uint32_t phases = 0;   // of this group's `full`, a bit a stage
  uint32_t queries = 0;  // of `query`
  uint32_t merges = 0;   // parts of which group 1 left sums
  Query query;
  PartWalk walk(p.plan, share);
  Part part;
  Part before{.token = -1};  // of the token that began in an earlier share
  Part behind{.token = -1};  // of the one that goes on in the next
  int loaded = -1;           // token
  while (walk.next(&part)) {
    if (loaded < 0) wait_for_earlier_kernels();
    if (part.of_token.n_parts > 1) (part.page_begin > 0 ? before : behind) = part;
    const int n_pages = part.page_end - part.page_begin;
    if (loaded != part.token) {
      const bool is_first = loaded < 0;
      loaded = part.token;
      query = take_query(p, s, part.token, head_group,
                         {turn.stage, queries >> turn.stage & 1, is_first});
      if (!is_first) queries ^= 1U << turn.stage;
      turn.next();
    }
    const int length = p.plan.position[part.token] + 1;
    Sums sums = empty_sums();
    int last_stage = 0;
    for (int i = 0; i < n_pages; ++i, turn.next()) {
      if (i % kGroups != group) continue;
      barrier_wait(&s.full[group][turn.stage], phases >> turn.stage & 1);
      phases ^= 1U << turn.stage;
      const int count = min(length - (part.page_begin + i) * kPageTokens, kPageTokens);
      attend_page(StagedPage<kFormat>{s.pages[turn.stage]}, count, query, group, exchange, &sums);
      last_stage = turn.stage;
      if (group == 1 && i + kGroups >= n_pages) continue;  // group 0 will free it
      leave_page(&s.empty[turn.stage]);
    }
    if (group == 1 && n_pages == 1) continue;
    finish_sums(group, exchange, &sums);
    float power = kFormat == KvFormat::bf16 ? 1.0F : power_of_two(-sums.exponent);
    if (n_pages > 1) {
      // The stage of the part's last page of group 1: that page is the last or the one before.
      if (group == 1) {
        auto* left = reinterpret_cast<LeftSums*>(s.pages[last_stage]);
        barrier_wait(&s.taken, (merges & 1) ^ 1);
        leave_sums(sums, thread, power, left);
        fence_async_proxy();
        barrier_arrive(&s.left);
        ++merges;
        continue;
      }
      constexpr int kStages = PageShape<kFormat>::kStages;
      const int behind = n_pages % 2 == 0 ? 1 : 2;  // how long ago that page was
      const int stage = (turn.stage + 2 * kStages - behind) % kStages;
      barrier_wait(&s.left, merges++ & 1);
      take_sums(*reinterpret_cast<const LeftSums*>(s.pages[stage]), thread, power, &sums);
      power = 1;
      leave_page(&s.empty[stage]);
      barrier_arrive(&s.taken);
    }
    write_sums<kFormat>(p, part, head_group, power, sums);
  }
  if (loaded < 0) wait_for_earlier_kernels();  // a block without a part
  if (p.plan.cut == Cut::fixed) return;        // combine_parts
  // No copy is under way any more; when both groups are here, nobody reads pages.
  both_groups_sync();
  auto* scratch = reinterpret_cast<CombineScratch*>(s.pages[0]) + group;
  static_assert(kGroups * sizeof(CombineScratch) <= sizeof(s.pages[0]));
  const bool both = before.token >= 0 && behind.token >= 0;
  Part cut = before;
  if (before.token < 0 || (both && group == 1)) cut = behind;
  if (cut.token >= 0) {
    finish_token<kFormat>(p, cut, share.index, head_group, both ? 0 : group, both ? 1 : kGroups,
                          scratch);
  }
}

// What every block reads first, toward the caches while earlier kernels still run: addresses alone,
// whatever is there now.
__device__ inline void prefetch_inputs(const Params& p) {
  const void* const first[] = {p.plan.position, p.row,         p.kv.table, p.q_latent,
                               p.q_rope,        p.partial.out, p.tickets,  p.out.data};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (static_cast<int>(threadIdx.x) == i * kWarpSize) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(first[i]));
    }
  }
}

// Work of a block: its share of the pages of all tokens (split_plan.cuh), for 8 heads. Grid: a
// block for every multiprocessor, the head groups of a share next to each other; 384 threads: two
// groups of four warps that attend (240 registers), one warp that copies; three stages, 121 KB
// (FP8) or 231 KB (BF16) of shared memory. Moves every page once for each token and head group:
// bound by memory. H200, 2026-11-30, 8 heads, 64 requests of 8,192 tokens: FP8 81 us, BF16 148 us.
template <KvFormat kFormat>
__global__ __launch_bounds__(kThreads, 1) void mla_decode_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& s = *reinterpret_cast<Shared<kFormat>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < s.kStages; ++i) {
      for (int group = 0; group < kGroups; ++group) barrier_init(&s.full[group][i], 1);
      barrier_init(&s.query[i], 1);
      barrier_init(&s.empty[i], kGroups * kGroupWarps);
    }
    barrier_init(&s.left, kGroupThreads);
    barrier_init(&s.taken, kGroupThreads);
    barrier_init_done();
  }
  prefetch_inputs(p);
  let_next_kernel_begin();
  __syncthreads();
  if (!p.history_is_settled) wait_for_earlier_kernels();
  const int head_group = static_cast<int>(blockIdx.x) % p.partial.n_head_groups;
  const int share = static_cast<int>(blockIdx.x) / p.partial.n_head_groups;
  if (warp_of_thread() >= kProducerWarp) {
    give_registers<kProducerRegisters>();
    if (warp_of_thread() == kProducerWarp) produce(p, s, find_share(p.plan, share), head_group);
  } else {
    take_registers<kConsumerRegisters>();
    consume(p, s, find_share(p.plan, share), head_group);
  }
}

template <KvFormat kFormat>
void launch_decode(const Context& context, const Params& p) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(p.plan.n_shares * p.partial.n_head_groups)),
      .threads = kThreads,
      .shared_bytes = sizeof(Shared<kFormat>)};
  launch(context.stream, shape, mla_decode_kernel<kFormat>, p);
}

PartialSums take_partial_sums(const Context& context, const DecodePlan& plan, int64_t n_tokens) {
  const int64_t n = plan.parts * plan.n_head_groups;
  Workspace& workspace = *context.workspace;
  workspace.begin(Workspace::bytes_of<float4>(n * kSumVectors) +
                  Workspace::bytes_of<float2>(n * kHeadTile) +
                  Workspace::bytes_of<TokenParts>(n_tokens));
  PartialSums out{.n_head_groups = plan.n_head_groups, .cut = plan.cut};
  out.out = workspace.take<float4>(n * kSumVectors);
  out.softmax = workspace.take<float2>(n * kHeadTile);
  out.parts = workspace.take<TokenParts>(n_tokens);
  return out;
}

DecodePlan plan_of(const Context& context, const ops::MlaAttention& args) {
  return plan_decode({.n_tokens = args.out[0],
                      .n_heads = args.out[1],
                      .table_width = args.kv.table[1],
                      .bits = context.deterministic ? BatchBits::must_not : BatchBits::may_differ},
                     context.n_sms);
}

void attend(const Context& context, const ops::MlaAttention& args) {
  const DecodePlan decode = plan_of(context, args);
  const SplitPlan plan{.position = args.tokens.position.data,
                       .n_tokens = static_cast<int>(args.out[0]),
                       .n_shares = decode.n_shares,
                       .overhead = decode.overhead,
                       .table_max = static_cast<int>(args.kv.table[1]),
                       .cut = decode.cut,
                       .chunk_log2 = decode.chunk_log2};
  const Params p{.kv = blocks_of(args.kv, args.layer),
                 .plan = plan,
                 .row = args.tokens.row.data,
                 .q_latent = device_type(args.q_latent.data),
                 .q_rope = device_type(args.q_rope.data),
                 .latent_stride = {args.q_latent.stride[0], args.q_latent.stride[1]},
                 .rope_stride = {args.q_rope.stride[0], args.q_rope.stride[1]},
                 .out = {.data = device_type(args.out.data),
                         .stride = {args.out.stride[0], args.out.stride[1]},
                         .n_heads = static_cast<int>(args.out[1])},
                 .partial = take_partial_sums(context, decode, args.out[0]),
                 .tickets = context.tickets,
                 .factor = args.scale * kLog2E,
                 .history_is_settled = args.history == ops::History::of_earlier_steps};
  switch (p.kv.format) {
    case KvFormat::bf16:
      launch_decode<KvFormat::bf16>(context, p);
      break;
    case KvFormat::fp8_e4m3_584:
      launch_decode<KvFormat::fp8_e4m3_584>(context, p);
      break;
  }
  if (plan.cut == Cut::even || plan.chunks_max() == 1) return;
  combine_parts(
      context.stream,
      {.partial = p.partial, .out = p.out, .n_tokens = plan.n_tokens, .format = p.kv.format});
}

template <class T>
bool is_aligned(const View<T, 3>& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.stride[0] % 8 == 0 &&
         view.stride[1] % 8 == 0;
}

}  // namespace

bool mla_decode_takes(const ops::MlaAttention& args) {
  return args.out[2] == kLatentDim && args.q_rope[2] == kRopeDim && is_aligned(args.out) &&
         is_aligned(args.q_latent) && is_aligned(args.q_rope);
}

void mla_decode(const Context& context, const ops::MlaAttention& args) {
  const int64_t step = plan_of(context, args).launch_tokens;
  for (int64_t begin = 0; begin < args.out[0]; begin += step) {
    const int64_t count = std::min(step, args.out[0] - begin);
    ops::MlaAttention part = args;
    part.out = args.out.rows(begin, count);
    part.q_latent = args.q_latent.rows(begin, count);
    part.q_rope = args.q_rope.rows(begin, count);
    part.tokens = {.row = args.tokens.row.rows(begin, count),
                   .position = args.tokens.position.rows(begin, count)};
    attend(context, part);
  }
}

}  // namespace quire::cuda
