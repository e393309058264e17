// Absorbed attention for rows of several tokens: neighbouring tokens of a row, all heads, share
// each page that is read.
//
// A tile is 64 queries (token, head), so that one page serves 64 rows of the tensor cores. The page
// lies once in shared memory, as bfloat16: its rows are the keys of the scores and, summed down
// columns, the values. FP8 rows are exact in bfloat16; their scales go to the scores and to the
// weights in float32. Weights are rounded to bfloat16 before they meet the values
// (ops/mla_attention.h).
#include <algorithm>

#include "base/bytes.h"
#include "cuda/attention/combine.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/mla_prefill/absorbed_tiles.h"
#include "cuda/mla_prefill/row_tiles.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace quire::cuda {

namespace {

constexpr int kRows = 64;  // queries of a tile
constexpr int kLatentMax = 512;
constexpr int kRopeMax = 64;
constexpr int kLatentPanels = kLatentMax / kPanelColumns;
constexpr int kPanels = kLatentPanels + 1;  // the last one holds rope
constexpr int kPanelBytes = 64 * kPanelRowBytes;
constexpr int kTileBytes = kPanels * kPanelBytes;  // of a page, and of the queries
constexpr int kStages = 2;
constexpr int kGroupThreads = 128;  // a warpgroup
constexpr int kConsumers = 2;       // each owns half of the latent columns of the sum
constexpr int kThreads = kGroupThreads * (kConsumers + 1);
// Together what the block is launched with, 504 for a thread of each warpgroup: one more and the
// consumers wait for registers that never come.
constexpr int kConsumerRegisters = 208;
constexpr int kProducerRegisters = 88;
constexpr float kLog2OfE = 1.44269504F;
constexpr int kHalfColumns = kLatentMax / kConsumers;
static_assert(kPageTokens == 64);

struct Params {
  PagedBlocks kv;
  RowTiles tiles;
  const int32_t* position;   // [n_tokens]
  const bf16* q_latent;      // [n_tokens, n_heads, kv.latent_dim]
  const bf16* q_rope;        // [n_tokens, n_heads, kv.rope_dim]
  int64_t latent_stride[2];  // elements between tokens, between heads
  int64_t rope_stride[2];
  bf16* out;  // [n_tokens, n_heads, kv.latent_dim]; used when n_splits is 1
  int64_t out_stride[2];
  SplitResults splits;  // used otherwise
  int n_heads;
  int tile_heads;  // heads of a tile
  int n_splits;
  float scale;
  bool kv_is_aligned;  // rows of the pool can be read 16 bytes at a time
  bool q_is_aligned;
};

struct Shared {
  alignas(1024) std::byte query[kTileBytes];
  std::byte page[kStages][kTileBytes];
  // FP8, of each token: what its score is multiplied by, its rope scale over that, and what its
  // latents are multiplied by.
  float score_scale[kStages][kPageTokens];
  float rope_ratio[kStages][kPageTokens];
  float latent_scale[kStages][kPageTokens];
  // Every thread that brought or used a stage arrives for itself, so that racecheck can follow
  // (docs/kernels/mla_prefill.md).
  Barrier full[kStages];
  Barrier empty[kStages];
  Tile tile;
};
constexpr int64_t kSharedBytes = sizeof(Shared) + 1024;  // dynamic memory is aligned to 16 only

// Which time round a stage is used, as the parity of its barriers' phases.
__device__ uint32_t phase_of(int turn) { return static_cast<uint32_t>(turn / kStages) & 1; }

// Where value `column` of a stored row lies in a tile; rope begins in the last panel.
__device__ int offset_of(const Params& p, int row, int column) {
  const int padded =
      column < p.kv.latent_dim ? column : column - p.kv.latent_dim + kLatentPanels * kPanelColumns;
  return padded / kPanelColumns * kPanelBytes + swizzled(row, padded % kPanelColumns / 8) +
         padded % 8 * 2;
}

struct Work {
  Tile tile;
  int first_position;
  int page_begin, page_end;
  int first_head, n_heads;

  __device__ int last_position() const { return first_position + tile.n_tokens - 1; }
  // Tokens of a page that any query of the tile may see.
  __device__ int count(int page) const {
    return min(last_position() + 1 - page * kPageTokens, kPageTokens);
  }
};

__device__ Work work_of(const Params& p, const Tile& tile) {
  Work w{.tile = tile, .first_position = p.position[tile.first_token]};
  const int n_pages = w.last_position() / kPageTokens + 1;
  const int split = static_cast<int>(blockIdx.y);
  w.page_begin = static_cast<int>(int64_t{n_pages} * split / p.n_splits);
  w.page_end = static_cast<int>(int64_t{n_pages} * (split + 1) / p.n_splits);
  w.first_head = static_cast<int>(blockIdx.z) * p.tile_heads;
  w.n_heads = min(p.tile_heads, p.n_heads - w.first_head);
  return w;
}

__device__ void clear(std::byte* memory, int bytes) {
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += kThreads) {
    reinterpret_cast<uint4*>(memory)[i] = {0, 0, 0, 0};
  }
}

// Row token * n_heads + head of the tile; rows past the last query stay zero.
__device__ void load_query(const Params& p, const Work& w, std::byte* query) {
  const int n_rows = w.tile.n_tokens * w.n_heads;
  for (int row = warp_of_thread(); row < n_rows; row += kThreads / kWarpSize) {
    const int64_t token = w.tile.first_token + row / w.n_heads;
    const int64_t head = w.first_head + row % w.n_heads;
    const bf16* latent = p.q_latent + token * p.latent_stride[0] + head * p.latent_stride[1];
    const bf16* rope = p.q_rope + token * p.rope_stride[0] + head * p.rope_stride[1];
    const int step = p.q_is_aligned ? 8 : 1;
    for (int column = lane_of_thread() * step; column < p.kv.values(); column += kWarpSize * step) {
      const bf16* from =
          column < p.kv.latent_dim ? latent + column : rope + column - p.kv.latent_dim;
      std::byte* to = query + offset_of(p, row, column);
      if (p.q_is_aligned) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        *reinterpret_cast<bf16*>(to) = *from;
      }
    }
  }
}

// Sixteen bytes to shared memory, or zeros; waited for by copies_done.
__device__ void copy_16(std::byte* to, const std::byte* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The producer's view of a page: `count` tokens of `block` are there, the others become zeros, so
// that what lies in their place (NaN, perhaps) is never multiplied.
struct PageCopy {
  const std::byte* block;
  int count;
  std::byte* to;
};

__device__ void copy_bf16(const Params& p, const PageCopy& page) {
  const int warp = warp_of_thread() % 4;
  const int row_bytes = 2 * p.kv.values();
  for (int row = warp; row < kPageTokens; row += 4) {
    for (int column = 8 * lane_of_thread(); column < p.kv.values(); column += 8 * kWarpSize) {
      copy_16(page.to + offset_of(p, row, column), page.block + row * row_bytes + 2 * column,
              row < page.count);
    }
  }
}

__device__ void store_fp8(const Params& p, const PageCopy& page, RowPart part, int row, int column,
                          const uint4& v) {
  const uint32_t four[4] = {v.x, v.y, v.z, v.w};
  bf16x2 pair[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    stored_to_bf16(four[j], part, &pair[2 * j], &pair[2 * j + 1]);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    *reinterpret_cast<uint4*>(page.to + offset_of(p, row, column + 8 * j)) = {
        bits_of(pair[4 * j]), bits_of(pair[4 * j + 1]), bits_of(pair[4 * j + 2]),
        bits_of(pair[4 * j + 3])};
  }
}

// Latents: a warp takes rows warp, warp + 4, ..., a lane 16 values; rope: what is left.
__device__ void copy_fp8(const Params& p, const PageCopy& page) {
  constexpr int kBatch = 8;  // loads of a thread under way
  const int warp = warp_of_thread() % 4;
  const int column = 16 * lane_of_thread();
  const int values = p.kv.values();
  const bool is_mine = column < p.kv.latent_dim;
  for (int first = warp; first < kPageTokens; first += 4 * kBatch) {
    uint4 v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int row = first + 4 * i;
      v[i] = {0, 0, 0, 0};
      if (is_mine && row < page.count) {
        v[i] = *reinterpret_cast<const uint4*>(page.block + row * values + column);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (is_mine) store_fp8(p, page, RowPart::latent, first + 4 * i, column, v[i]);
    }
  }
  const int vectors = p.kv.rope_dim / 16;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  for (int i = thread; i < kPageTokens * vectors; i += kGroupThreads) {
    const int row = i / vectors;
    const int rope_column = p.kv.latent_dim + 16 * (i % vectors);
    uint4 v{0, 0, 0, 0};
    if (row < page.count) {
      v = *reinterpret_cast<const uint4*>(page.block + row * values + rope_column);
    }
    store_fp8(p, page, RowPart::key, row, rope_column, v);
  }
}

// Layouts whose rows are not made of 16-byte pieces.
template <KvFormat kFormat>
__device__ void copy_by_value(const Params& p, const PageCopy& page) {
  const int values = p.kv.values();
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  for (int i = thread; i < kPageTokens * values; i += kGroupThreads) {
    bf16 value = __ushort_as_bfloat16(0);
    if (i / values < page.count) {
      if constexpr (kFormat == KvFormat::bf16) {
        value = reinterpret_cast<const bf16*>(page.block)[i];
      } else {
        value = __float2bfloat16_rn(stored_value(reinterpret_cast<const uint8_t*>(page.block)[i],
                                                 p.kv.part_of(i % values)));
      }
    }
    *reinterpret_cast<bf16*>(page.to + offset_of(p, i / values, i % values)) = value;
  }
}

__device__ void load_scales(const Params& p, const PageCopy& page, int token, Shared& s,
                            int stage) {
  float2 scale{0, 0};  // of latents, of rope
  if (token < page.count) {
    scale =
        reinterpret_cast<const float2*>(page.block + PagedBlocks::scales_at(p.kv.values()))[token];
  }
  // Scores are (latent + rope * ratio) * scale. Latents too small for a finite ratio are nothing
  // beside the rope part, whatever they are multiplied by.
  const float score_scale = fmaxf(scale.x, scale.y * 0x1p-96F);
  s.score_scale[stage][token] = score_scale;
  s.rope_ratio[stage][token] = score_scale > 0 ? __fdiv_rn(scale.y, score_scale) : 0.0F;
  s.latent_scale[stage][token] = scale.x;
}

template <KvFormat kFormat>
__device__ void produce(const Params& p, const Work& w, Shared& s) {
  const int32_t* table = p.kv.table + int64_t{w.tile.row} * p.kv.table_stride;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  for (int page = w.page_begin; page < w.page_end; ++page) {
    const int turn = page - w.page_begin;
    const int stage = turn % kStages;
    const int64_t physical = min(max(int64_t{table[page]}, int64_t{0}), p.kv.n_pages - 1);
    const PageCopy copy{p.kv.block(physical), w.count(page), s.page[stage]};
    barrier_wait(&s.empty[stage], phase_of(turn) ^ 1);
    if (kFormat != KvFormat::bf16 && thread < kPageTokens) load_scales(p, copy, thread, s, stage);
    if (!p.kv_is_aligned) {
      copy_by_value<kFormat>(p, copy);
    } else if constexpr (kFormat == KvFormat::bf16) {
      copy_bf16(p, copy);
      copies_done();
    } else {
      copy_fp8(p, copy);
    }
    fence_async_proxy();
    barrier_arrive(&s.full[stage]);
  }
}

// What a thread knows of its two queries, rows g and g + 8 of its warp's sixteen.
struct Queries {
  int row[2];       // of the tile
  int position[2];  // keys behind it are masked
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of the keys of this thread
};

// score[4j + i] of the warpgroup's 64 queries and the page's 64 keys, scaled.
template <KvFormat kFormat>
__device__ void compute_scores(const Params& p, const Shared& s, int stage, float (&score)[32]) {
  const auto product = [&](int panel, Sum sum) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int at = panel * kPanelBytes + 32 * k;
      wgmma_m64n64k16(score, operand_of_rows(s.query + at), operand_of_rows(s.page[stage] + at),
                      k == 0 ? sum : Sum::goes_on);
    }
  };
  wgmma_hold(score);
  wgmma_fence();
  product(kLatentPanels, Sum::starts);
  if constexpr (kFormat != KvFormat::bf16) {
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(score);
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      score[i] *= s.rope_ratio[stage][8 * (i / 4) + 2 * (lane_of_thread() % 4) + i % 2];
    }
    wgmma_hold(score);
    wgmma_fence();
  }
#pragma unroll
  for (int panel = 0; panel < kLatentPanels; ++panel) product(panel, Sum::goes_on);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_hold(score);
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    float scale = p.scale;
    if constexpr (kFormat != KvFormat::bf16) {
      scale *= s.score_scale[stage][8 * (i / 4) + 2 * (lane_of_thread() % 4) + i % 2];
    }
    score[i] *= scale;
  }
}

__device__ void mask(const Queries& q, int first_key, float (&score)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int key = first_key + 8 * (i / 4) + 2 * (lane_of_thread() % 4) + i % 2;
    if (key > q.position[i / 2 % 2]) score[i] = -INFINITY;
  }
}

// Scores become weights (float32, their sum in `total`); returns what earlier sums shrink by.
__device__ float2 update_softmax(Queries& q, float (&score)[32]) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = -INFINITY;
    for (int j = 0; j < 8; ++j) {
      largest = fmaxf(largest, fmaxf(score[4 * j + 2 * half], score[4 * j + 2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
    largest = fmaxf(largest, q.largest[half]);
    // No key yet: -inf - -inf would be NaN. NaN scores reach the weights all the same.
    const float from = largest == -INFINITY ? 0.0F : largest * kLog2OfE;
    shrink[half] = exp2f(fmaf(q.largest[half], kLog2OfE, -from));
    float sum = 0;
    for (int j = 0; j < 8; ++j) {
      for (int i = 4 * j + 2 * half; i < 4 * j + 2 * half + 2; ++i) {
        score[i] = exp2f(fmaf(score[i], kLog2OfE, -from));
        sum += score[i];
      }
    }
    q.total[half] = q.total[half] * shrink[half] + sum;
    q.largest[half] = largest;
  }
  return {shrink[0], shrink[1]};
}

// Sixteen keys of weights as an operand.
__device__ MmaA weights_of(const float (&weight)[32], int k) {
  const float* w = weight + 8 * k;
  return {bits_of(__floats2bfloat162_rn(w[0], w[1])), bits_of(__floats2bfloat162_rn(w[2], w[3])),
          bits_of(__floats2bfloat162_rn(w[4], w[5])), bits_of(__floats2bfloat162_rn(w[6], w[7]))};
}

// sum[query, c] += weight[query, j] * latent[j, c], for the warpgroup's half of the columns.
template <KvFormat kFormat>
__device__ void add_values(const Shared& s, int stage, float (&weight)[32], float (&sum)[128]) {
  if constexpr (kFormat != KvFormat::bf16) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      weight[i] *= s.latent_scale[stage][8 * (i / 4) + 2 * (lane_of_thread() % 4) + i % 2];
    }
  }
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const std::byte* values = s.page[stage] + group * (kHalfColumns / kPanelColumns) * kPanelBytes;
  MmaA a[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) a[k] = weights_of(weight, k);
  wgmma_hold(sum);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    wgmma_m64n256k16(sum, a[k], operand_of_columns(values + 16 * k * kPanelRowBytes, kPanelBytes),
                     Sum::goes_on);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_hold(sum);
}

__device__ void store(const Params& p, const Work& w, const Queries& q, const float (&sum)[128]) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int split = static_cast<int>(blockIdx.y);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = q.total[half];
    total += __shfl_xor_sync(kFullWarp, total, 1);
    total += __shfl_xor_sync(kFullWarp, total, 2);
    if (q.row[half] >= w.tile.n_tokens * w.n_heads) continue;
    const int64_t token = w.tile.first_token + q.row[half] / w.n_heads;
    const int64_t head = w.first_head + q.row[half] % w.n_heads;
    bf16* out = p.out + token * p.out_stride[0] + head * p.out_stride[1];
    const int64_t at = p.n_splits == 1 ? 0 : p.splits.at(token, head, split);
    const int first_column = group * kHalfColumns + 2 * (lane_of_thread() % 4);
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int column = first_column + 8 * (i / 2) + i % 2;
      const float value = sum[4 * (i / 2) + 2 * half + i % 2];
      if (column >= p.kv.latent_dim) continue;
      if (p.n_splits == 1) {
        out[column] = __float2bfloat16_rn(__fdiv_rn(value, total));
      } else {
        p.splits.sum[at * p.kv.latent_dim + column] = value;
      }
    }
    if (p.n_splits > 1 && group == 0 && lane_of_thread() % 4 == 0) {
      p.splits.total[at] = total;
      p.splits.largest[at] = q.largest[half];
    }
  }
}

template <KvFormat kFormat>
__device__ void consume(const Params& p, const Work& w, Shared& s) {
  Queries q;
  for (int half = 0; half < 2; ++half) {
    q.row[half] = 16 * (warp_of_thread() % 4) + lane_of_thread() / 4 + 8 * half;
    q.position[half] = min(w.first_position + q.row[half] / w.n_heads, w.last_position());
  }
  float sum[128] = {};
  for (int page = w.page_begin; page < w.page_end; ++page) {
    const int turn = page - w.page_begin;
    const int stage = turn % kStages;
    barrier_wait(&s.full[stage], phase_of(turn));
    float weight[32];
    compute_scores<kFormat>(p, s, stage, weight);
    const int first_key = page * kPageTokens;
    if (first_key + kPageTokens - 1 > w.first_position) mask(q, first_key, weight);
    const float2 shrink = update_softmax(q, weight);
    if (__any_sync(kFullWarp, shrink.x != 1.0F || shrink.y != 1.0F)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) sum[i] *= i / 2 % 2 == 0 ? shrink.x : shrink.y;
    }
    add_values<kFormat>(s, stage, weight, sum);
    barrier_arrive(&s.empty[stage]);
  }
  store(p, w, q, sum);
}

// Work of a block: a tile of 64 queries and one split of its pages. Grid (tiles, splits, head
// groups), 384 threads: a warpgroup brings pages, each of two others computes all scores (so that
// they need nothing of each other) and half of the latent columns. 223 KB of shared memory. Moves a
// page's block (FP8 37,376 B, BF16 73,728 B) once a tile, mostly out of the second-level cache, for
// 64 x 64 x 1,088 products, and 576 again for the second set of scores.
template <KvFormat kFormat>
__global__ __launch_bounds__(kThreads,
                             1) void absorbed_tiles_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::byte memory[];
  const auto base = reinterpret_cast<uintptr_t>(memory);
  Shared& s = *reinterpret_cast<Shared*>(memory + ((1024 - base % 1024) % 1024));
  if (warp_of_thread() == 0) {
    // The longest first: blocks that start late are short.
    const Tile tile = p.tiles.find(static_cast<int32_t>(gridDim.x - 1 - blockIdx.x));
    if (lane_of_thread() == 0) s.tile = tile;
  }
  if (threadIdx.x == kWarpSize) {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(&s.full[stage], kGroupThreads);
      barrier_init(&s.empty[stage], kConsumers * kGroupThreads);
    }
    barrier_init_done();
  }
  clear(s.query, kTileBytes * (1 + kStages));  // the pages follow the queries
  __syncthreads();
  if (s.tile.row < 0) return;
  const Work w = work_of(p, s.tile);
  load_query(p, w, s.query);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroupThreads) {
    give_registers<kProducerRegisters>();
    produce<kFormat>(p, w, s);
  } else {
    take_registers<kConsumerRegisters>();
    consume<kFormat>(p, w, s);
  }
}

// Enough blocks for one on every multiprocessor twice over, and no more than a page each.
// One split where a row's bits must not depend on the others.
int choose_splits(const Context& context, int64_t n_blocks, int64_t pages_max) {
  constexpr int64_t kSplitsMax = 64;  // what one block still combines quickly
  if (context.deterministic) return 1;
  const int64_t wanted = div_up(int64_t{2} * context.n_sms, n_blocks);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, pages_max), 1, kSplitsMax));
}

template <KvFormat kFormat>
void launch(const Context& context, const Params& p, const dim3& grid) {
  allow_shared_memory(absorbed_tiles_kernel<kFormat>, kSharedBytes);
  absorbed_tiles_kernel<kFormat><<<grid, kThreads, kSharedBytes, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

// 16-byte vectors must not straddle a row or the two parts of one.
bool rows_are_aligned(const KvPageLayout& layout) {
  const int32_t vector = layout.format == KvFormat::bf16 ? 8 : 16;
  return layout.kv_lora_rank % vector == 0 && layout.rope_dim % vector == 0;
}

bool is_at_16(const View<const Bf16, 3>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride[0] % 8 == 0 &&
         x.stride[1] % 8 == 0 && x[2] % 8 == 0;
}

}  // namespace

void absorbed_tiles(const Context& context, const ops::MlaAttention& args) {
  CHECK(args.out[2] <= kLatentMax && args.q_rope[2] <= kRopeMax && args.out[0] < INT32_MAX);
  CHECK(args.tokens.row_begin.data != nullptr);
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  const int64_t n_lone = args.tokens.n_lone;
  const int64_t n_rows = args.kv.table[0] - n_lone;
  const int64_t tile_heads = std::min<int64_t>(n_heads, kRows);
  const int64_t tile_tokens = kRows / tile_heads;
  const int64_t n_tiles = tiles_max(n_tokens - n_lone, n_rows, tile_tokens);
  const int64_t head_groups = div_up(n_heads, tile_heads);
  Params p{.kv = blocks_of(args.kv, args.layer),
           .tiles = {.row_begin = args.tokens.row_begin.data + n_lone,
                     .n_rows = static_cast<int32_t>(n_rows),
                     .tile_tokens = static_cast<int32_t>(tile_tokens)},
           .position = args.tokens.position.data,
           .q_latent = device_type(args.q_latent.data),
           .q_rope = device_type(args.q_rope.data),
           .latent_stride = {args.q_latent.stride[0], args.q_latent.stride[1]},
           .rope_stride = {args.q_rope.stride[0], args.q_rope.stride[1]},
           .out = device_type(args.out.data),
           .out_stride = {args.out.stride[0], args.out.stride[1]},
           .n_heads = static_cast<int>(n_heads),
           .tile_heads = static_cast<int>(tile_heads),
           .n_splits = choose_splits(context, n_tiles * head_groups, args.kv.table[1]),
           .scale = args.scale,
           .kv_is_aligned = rows_are_aligned(*args.kv.layout),
           .q_is_aligned = is_at_16(args.q_latent) && is_at_16(args.q_rope)};
  p.kv.table += n_lone * p.kv.table_stride;
  if (p.n_splits > 1) {
    p.splits = take_splits(context, {n_tokens, n_heads, p.n_splits, p.kv.latent_dim});
  }
  const dim3 grid(static_cast<unsigned>(n_tiles), static_cast<unsigned>(p.n_splits),
                  static_cast<unsigned>(head_groups));
  switch (args.kv.layout->format) {
    case KvFormat::bf16:
      launch<KvFormat::bf16>(context, p, grid);
      break;
    case KvFormat::fp8_e4m3_584:
      launch<KvFormat::fp8_e4m3_584>(context, p, grid);
      break;
  }
  if (p.n_splits == 1) return;
  combine(context, p.splits.from(n_lone), args.out.rows(n_lone, n_tokens - n_lone));
}

}  // namespace quire::cuda
