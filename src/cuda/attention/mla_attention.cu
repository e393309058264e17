// Absorbed attention over pages, tensor cores, the pages of a token split among blocks.
//
// With S = K q^T the tokens of a page are the rows of the tensor-core tile and heads its columns,
// so that eight heads fill it. Weights P are split in two bfloat16 parts (high + low: 16 bits of
// mantissa), values stay as stored: FP8 rows are exact in bfloat16, and their scales go to the
// scores and to P in float32.
#include <algorithm>

#include "base/bytes.h"
#include "cuda/attention/combine.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/mla_decode/mla_decode.h"
#include "cuda/mla_prefill/absorbed_tiles.h"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kLatentMax = 512;
constexpr int kRopeMax = 64;
constexpr int kPad = 8;                                 // bfloat16: rows begin in different banks
constexpr int kScoreRow = 64 + 4;                       // float32
constexpr int kWeightRow = 64 + kPad;                   // bfloat16
constexpr int kTilesOfWarp = kLatentMax / 16 / kWarps;  // of 16 latent values
constexpr int64_t kSplitsMax = 128;  // of a token's pages: what one block still combines quickly
static_assert(kPageTokens == 16 * kWarps);

struct Params {
  PagedBlocks kv;
  const int32_t* row;        // [n_tokens] row of the page table
  const int32_t* position;   // [n_tokens]
  const bf16* q_latent;      // [n_tokens, n_heads, kv.latent_dim]
  const bf16* q_rope;        // [n_tokens, n_heads, kv.rope_dim]
  int64_t latent_stride[2];  // elements between tokens, between heads
  int64_t rope_stride[2];
  bf16* out;  // [n_tokens, n_heads, kv.latent_dim]; used when n_splits is 1
  int64_t out_stride[2];
  SplitResults splits;  // used otherwise
  int n_heads;
  int n_splits;
  float scale;
  bool is_aligned;  // rows of the pool can be read 16 bytes at a time

  // Both parts are padded to whole tensor-core steps, with zeros.
  __host__ __device__ int latent_padded() const { return (kv.latent_dim + 15) / 16 * 16; }
  __host__ __device__ int rope_padded() const { return (kv.rope_dim + 15) / 16 * 16; }
  __host__ __device__ int shared_row() const { return latent_padded() + rope_padded() + kPad; }
};

template <int kHeadTiles>
struct Shared {
  static constexpr int kHeads = 8 * kHeadTiles;

  bf16* page;      // [64, shared_row]
  bf16* query;     // [kHeads, shared_row]
  float* scores;   // [kHeads, kScoreRow]
  bf16* high;      // [kHeads, kWeightRow]
  bf16* low;       // [kHeads, kWeightRow]
  float* scales;   // [64, 2] of the page's tokens
  float* shrink;   // [kHeads] factor on everything summed so far
  float* total;    // [kHeads]
  float* largest;  // [kHeads]

  static size_t bytes(int shared_row) {
    return static_cast<size_t>(64 + kHeads) * static_cast<size_t>(shared_row) * sizeof(bf16) +
           sizeof(float) * kHeads * kScoreRow + 2 * sizeof(bf16) * kHeads * kWeightRow +
           sizeof(float) * (128 + 3 * kHeads);
  }
  __device__ Shared(std::byte* memory, int shared_row) {
    page = reinterpret_cast<bf16*>(memory);
    query = page + 64 * shared_row;
    scores = reinterpret_cast<float*>(query + kHeads * shared_row);
    high = reinterpret_cast<bf16*>(scores + kHeads * kScoreRow);
    low = high + kHeads * kWeightRow;
    scales = reinterpret_cast<float*>(low + kHeads * kWeightRow);
    shrink = scales + 128;
    total = shrink + kHeads;
    largest = total + kHeads;
  }
};

// Where value `column` of a stored row goes in a row of shared memory; the rope part is moved
// behind the padding of the latent.
__device__ int shared_column(const Params& p, int column) {
  return column < p.kv.latent_dim ? column : column - p.kv.latent_dim + p.latent_padded();
}

// The first `count` tokens of a page, as bfloat16 without their scales; the others are zero, so
// that what lies there (NaN, perhaps) is never multiplied.
__device__ void load_page(const Params& p, const std::byte* block, int count, bf16* page,
                          float* scales) {
  const int values = p.kv.values();
  const int row = p.shared_row();
  const bool is_fp8 = p.kv.format != KvFormat::bf16;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 64 && is_fp8) {
    const auto* stored =
        reinterpret_cast<const float*>(block + PagedBlocks::scales_at(values)) + 2 * thread;
    scales[2 * thread] = thread < count ? stored[0] : 0.0F;
    scales[2 * thread + 1] = thread < count ? stored[1] : 0.0F;
  }
  if (p.is_aligned) {
    const int per_vector = is_fp8 ? 16 : 8;
    const int vectors = values / per_vector;  // of a row
    for (int i = thread; i < 64 * vectors; i += kThreads) {
      const int token = i / vectors;
      const int column = i % vectors * per_vector;
      bf16* to = page + token * row + shared_column(p, column);
      uint4 v{0, 0, 0, 0};
      if (token < count) v = reinterpret_cast<const uint4*>(block)[i];
      if (!is_fp8) {
        *reinterpret_cast<uint4*>(to) = v;
        continue;
      }
      const uint32_t four[4] = {v.x, v.y, v.z, v.w};
      bf16x2 pair[8];
      const RowPart part = p.kv.part_of(column);
      for (int j = 0; j < 4; ++j) {
        stored_to_bf16(four[j], part, &pair[2 * j], &pair[2 * j + 1]);
      }
      for (int j = 0; j < 2; ++j) {
        reinterpret_cast<uint4*>(to)[j] = {bits_of(pair[4 * j]), bits_of(pair[4 * j + 1]),
                                           bits_of(pair[4 * j + 2]), bits_of(pair[4 * j + 3])};
      }
    }
    return;
  }
  for (int i = thread; i < 64 * values; i += kThreads) {
    const int token = i / values;
    const int column = i % values;
    bf16 value = __ushort_as_bfloat16(0);
    if (token < count) {
      value = is_fp8 ? __float2bfloat16_rn(stored_value(reinterpret_cast<const uint8_t*>(block)[i],
                                                        p.kv.part_of(column)))
                     : reinterpret_cast<const bf16*>(block)[i];
    }
    page[token * row + shared_column(p, column)] = value;
  }
}

// The queries of the block's heads; heads past n_heads, and the padding of all rows, are zero.
template <int kHeads>
__device__ void load_query(const Params& p, int64_t token, int first_head, bf16* query,
                           bf16* page) {
  const int row = p.shared_row();
  const bf16 zero = __ushort_as_bfloat16(0);
  for (int i = static_cast<int>(threadIdx.x); i < (64 + kHeads) * row; i += kThreads) {
    page[i] = zero;  // the query follows the page
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * p.kv.values(); i += kThreads) {
    const int head = first_head + i / p.kv.values();
    const int column = i % p.kv.values();
    if (head >= p.n_heads) break;
    const bf16* latent = p.q_latent + token * p.latent_stride[0] + head * p.latent_stride[1];
    const bf16* rope = p.q_rope + token * p.rope_stride[0] + head * p.rope_stride[1];
    query[i / p.kv.values() * row + shared_column(p, column)] =
        column < p.kv.latent_dim ? latent[column] : rope[column - p.kv.latent_dim];
  }
}

// scores[head, token] = scale * q . k of the warp's 16 tokens; -inf from `count` on.
template <int kHeadTiles>
__device__ void compute_scores(const Params& p, const Shared<kHeadTiles>& s, int count) {
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  const int row = p.shared_row();
  const int first = 16 * warp_of_thread();
  float latent[kHeadTiles][4] = {};
  float rope[kHeadTiles][4] = {};
  const auto step = [&](int k, float(&sum)[kHeadTiles][4]) {
    // A lane takes four neighbouring values of k, in both operands.
    const auto* low = reinterpret_cast<const uint2*>(s.page + (first + g) * row + k + 4 * t);
    const auto* high = reinterpret_cast<const uint2*>(s.page + (first + g + 8) * row + k + 4 * t);
    const MmaA a{low->x, high->x, low->y, high->y};
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      const auto* b = reinterpret_cast<const uint2*>(s.query + (8 * tile + g) * row + k + 4 * t);
      mma_bf16(sum[tile], a, b->x, b->y);
    }
  };
  const int latent_end = p.latent_padded();
  for (int k = 0; k < latent_end; k += 16) step(k, latent);
  for (int k = latent_end; k < latent_end + p.rope_padded(); k += 16) step(k, rope);
  const bool is_fp8 = p.kv.format != KvFormat::bf16;
  for (int tile = 0; tile < kHeadTiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      const int token = first + g + (i < 2 ? 0 : 8);
      const int head = 8 * tile + 2 * t + i % 2;
      float score =
          is_fp8 ? latent[tile][i] * s.scales[2 * token] + rope[tile][i] * s.scales[2 * token + 1]
                 : latent[tile][i] + rope[tile][i];
      score *= p.scale;
      s.scores[head * kScoreRow + token] = token < count ? score : -INFINITY;
    }
  }
}

// Online softmax over the page, a warp a head and turn: weights (times the token's latent scale) in
// two parts, and what earlier sums shrink by.
template <int kHeadTiles>
__device__ void update_softmax(const Params& p, const Shared<kHeadTiles>& s, int count) {
  const int lane = lane_of_thread();
  const bool is_fp8 = p.kv.format != KvFormat::bf16;
  for (int head = warp_of_thread(); head < s.kHeads; head += kWarps) {
    const float score[2] = {s.scores[head * kScoreRow + lane],
                            s.scores[head * kScoreRow + lane + 32]};
    const float before = s.largest[head];
    // NaN scores must not be lost to fmaxf: they reach the weights, and through them the sums.
    const float largest = fmaxf(before, warp_max(fmaxf(score[0], score[1])));
    float sum = 0;
    for (int i = 0; i < 2; ++i) {
      const int token = lane + 32 * i;
      float weight = token < count ? expf(score[i] - largest) : 0.0F;
      sum += weight;
      if (is_fp8) weight *= s.scales[2 * token];
      const bf16 high = __float2bfloat16_rn(weight);
      s.high[head * kWeightRow + token] = high;
      s.low[head * kWeightRow + token] = __float2bfloat16_rn(weight - __bfloat162float(high));
    }
    sum = warp_sum(sum);
    __syncwarp();  // all lanes have read what is about to change
    if (lane == 0) {
      const float shrink = expf(before - largest);
      s.shrink[head] = shrink;
      s.total[head] = s.total[head] * shrink + sum;
      s.largest[head] = largest;
    }
  }
}

// sum[c, head] = sum[c, head] * shrink + sum over the page of c_j[c] * weight[j, head]. The warp
// owns latent tiles warp, warp + 4, ...
template <int kHeadTiles>
__device__ void add_values(const Params& p, const Shared<kHeadTiles>& s,
                           float (&sum)[kTilesOfWarp][kHeadTiles][4]) {
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  const int row = p.shared_row();
  const int n_tiles = p.latent_padded() / 16;
  for (int tile = 0; tile < kHeadTiles; ++tile) {
    const float shrink[2] = {s.shrink[8 * tile + 2 * t], s.shrink[8 * tile + 2 * t + 1]};
    for (int i = 0; i < kTilesOfWarp; ++i) {
      for (int j = 0; j < 4; ++j) sum[i][tile][j] *= shrink[j % 2];
    }
  }
#pragma unroll
  for (int k = 0; k < kPageTokens; k += 16) {
    uint32_t b[kHeadTiles][2][2];  // of the high and the low part
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      const int at = (8 * tile + g) * kWeightRow + k + 2 * t;
      b[tile][0][0] = *reinterpret_cast<const uint32_t*>(s.high + at);
      b[tile][0][1] = *reinterpret_cast<const uint32_t*>(s.high + at + 8);
      b[tile][1][0] = *reinterpret_cast<const uint32_t*>(s.low + at);
      b[tile][1][1] = *reinterpret_cast<const uint32_t*>(s.low + at + 8);
    }
#pragma unroll
    for (int i = 0; i < kTilesOfWarp; ++i) {
      const int latent_tile = warp_of_thread() + kWarps * i;
      if (latent_tile >= n_tiles) break;
      // 8x8 tiles of page[token, c]: tokens k and k + 8 are the columns of A, c its rows.
      const int lane = lane_of_thread();
      const int token = k + lane % 8 + (lane / 16) * 8;
      const int column = 16 * latent_tile + (lane / 8 % 2) * 8;
      const MmaA a = load_transposed(s.page + token * row + column);
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        mma_bf16(sum[i][tile], a, b[tile][0][0], b[tile][0][1]);
        mma_bf16(sum[i][tile], a, b[tile][1][0], b[tile][1][1]);
      }
    }
  }
}

// Work of a block: one token, 8 or 16 heads, one split of its pages. Grid (splits, head groups,
// tokens), 128 threads, about 92 KB (8 heads) of shared memory: two blocks a multiprocessor. Moves
// a page's block once for each token and head group: bound by the latency of its loads, few of
// which are under way. H200, 2026-11-29, 8 heads, 1 / 8 / 64 requests of 8,192 tokens, combine
// included: BF16 145 / 221 / 728 us, FP8 142 / 160 / 556 us.
template <int kHeadTiles>
__global__ __launch_bounds__(kThreads) void mla_attention_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) std::byte memory[];
  const Shared<kHeadTiles> s(memory, p.shared_row());
  const int64_t token = blockIdx.z;
  const int first_head = static_cast<int>(blockIdx.y) * s.kHeads;
  const int split = static_cast<int>(blockIdx.x);
  const int position = p.position[token];
  const int n_pages = position / kPageTokens + 1;
  const int page_begin = static_cast<int>(int64_t{n_pages} * split / p.n_splits);
  const int page_end = static_cast<int>(int64_t{n_pages} * (split + 1) / p.n_splits);
  const int32_t* table = p.kv.table + p.row[token] * p.kv.table_stride;

  load_query<s.kHeads>(p, token, first_head, s.query, s.page);
  for (int head = static_cast<int>(threadIdx.x); head < s.kHeads; head += kThreads) {
    s.total[head] = 0;
    s.largest[head] = -INFINITY;
  }
  float sum[kTilesOfWarp][kHeadTiles][4] = {};
  for (int page = page_begin; page < page_end; ++page) {
    const int count = min(position + 1 - page * kPageTokens, kPageTokens);
    const int64_t physical = min(max(int64_t{table[page]}, int64_t{0}), p.kv.n_pages - 1);
    __syncthreads();  // the page before was used
    load_page(p, p.kv.block(physical), count, s.page, s.scales);
    __syncthreads();
    compute_scores<kHeadTiles>(p, s, count);
    __syncthreads();
    update_softmax<kHeadTiles>(p, s, count);
    __syncthreads();
    add_values<kHeadTiles>(p, s, sum);
  }
  __syncthreads();

  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  for (int i = 0; i < kTilesOfWarp; ++i) {
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      for (int j = 0; j < 4; ++j) {
        const int column = 16 * (warp_of_thread() + kWarps * i) + g + (j < 2 ? 0 : 8);
        const int in_block = 8 * tile + 2 * t + j % 2;
        const int head = first_head + in_block;
        if (column >= p.kv.latent_dim || head >= p.n_heads) continue;
        if (p.n_splits == 1) {
          p.out[token * p.out_stride[0] + head * p.out_stride[1] + column] =
              __float2bfloat16_rn(__fdiv_rn(sum[i][tile][j], s.total[in_block]));
        } else {
          p.splits.sum[p.splits.at(token, head, split) * p.kv.latent_dim + column] =
              sum[i][tile][j];
        }
      }
    }
  }
  if (p.n_splits == 1) return;
  for (int i = static_cast<int>(threadIdx.x); i < s.kHeads; i += kThreads) {
    if (first_head + i >= p.n_heads) continue;
    const int64_t at = p.splits.at(token, first_head + i, split);
    p.splits.total[at] = s.total[i];
    p.splits.largest[at] = s.largest[i];
  }
}

// Enough blocks for four on every multiprocessor, and no more than a page each.
int choose_splits(const Context& context, const ops::MlaAttention& args, int64_t head_groups) {
  if (context.deterministic) return 1;
  const int64_t wanted = div_up(int64_t{4} * context.n_sms, args.out[0] * head_groups);
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, args.kv.table[1]), 1, kSplitsMax));
}

template <int kHeadTiles>
void launch(const Context& context, const Params& p, int64_t n_tokens) {
  const size_t shared = Shared<kHeadTiles>::bytes(p.shared_row());
  allow_shared_memory(mla_attention_kernel<kHeadTiles>, static_cast<int64_t>(shared));
  const dim3 grid(static_cast<unsigned>(p.n_splits),
                  static_cast<unsigned>(div_up(p.n_heads, 8 * kHeadTiles)),
                  static_cast<unsigned>(n_tokens));
  mla_attention_kernel<kHeadTiles><<<grid, kThreads, shared, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

// 16-byte vectors must not straddle a row or the two parts of one.
bool rows_are_aligned(const KvPageLayout& layout) {
  const int32_t vector = layout.format == KvFormat::bf16 ? 8 : 16;
  return layout.kv_lora_rank % 16 == 0 && layout.rope_dim % vector == 0;
}

void attend(const Context& context, const ops::MlaAttention& args) {
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  const bool is_narrow = n_heads <= 8;
  Params p{.kv = blocks_of(args.kv, args.layer),
           .row = args.tokens.row.data,
           .position = args.tokens.position.data,
           .q_latent = device_type(args.q_latent.data),
           .q_rope = device_type(args.q_rope.data),
           .latent_stride = {args.q_latent.stride[0], args.q_latent.stride[1]},
           .rope_stride = {args.q_rope.stride[0], args.q_rope.stride[1]},
           .out = device_type(args.out.data),
           .out_stride = {args.out.stride[0], args.out.stride[1]},
           .n_heads = static_cast<int>(n_heads),
           .scale = args.scale,
           .is_aligned = rows_are_aligned(*args.kv.layout)};
  p.n_splits = choose_splits(context, args, div_up(n_heads, is_narrow ? 8 : 16));
  if (p.n_splits > 1) {
    p.splits = take_splits(context, {n_tokens, n_heads, p.n_splits, p.kv.latent_dim});
  }
  if (is_narrow) {
    launch<1>(context, p, n_tokens);
  } else {
    launch<2>(context, p, n_tokens);
  }
  if (p.n_splits > 1) combine(context, p.splits, args.out);
}

// Every token reads its pages for itself.
void attend_each(const Context& context, const ops::MlaAttention& args) {
  if (mla_decode_takes(args)) {
    mla_decode(context, args);
    return;
  }
  CHECK(args.out[2] <= kLatentMax && args.q_rope[2] <= kRopeMax);
  constexpr int64_t kTokensMax = 32768;  // of a launch: grid.z ends at 65,535
  for (int64_t begin = 0; begin < args.out[0]; begin += kTokensMax) {
    const int64_t count = std::min(kTokensMax, args.out[0] - begin);
    ops::MlaAttention part = args;
    part.out = args.out.rows(begin, count);
    part.q_latent = args.q_latent.rows(begin, count);
    part.q_rope = args.q_rope.rows(begin, count);
    part.tokens = {.row = args.tokens.row.rows(begin, count),
                   .position = args.tokens.position.rows(begin, count)};
    attend(context, part);
  }
}

}  // namespace

void mla_attention(const Context& context, const ops::MlaAttention& args) {
  // Deterministic: a token's bits may not depend on how many of its row come with it.
  if (context.deterministic || args.tokens.row_tokens_max <= 1) {
    attend_each(context, args);
    return;
  }
  // A lone row takes the same way beside a chunk as without one: its bits are the same.
  if (args.tokens.n_lone > 0) {
    ops::MlaAttention lone = args;
    lone.tokens = args.tokens.lone();
    lone.out = args.out.rows(0, args.tokens.n_lone);
    lone.q_latent = args.q_latent.rows(0, args.tokens.n_lone);
    lone.q_rope = args.q_rope.rows(0, args.tokens.n_lone);
    attend_each(context, lone);
  }
  absorbed_tiles(context, args);
}

}  // namespace quire::cuda
