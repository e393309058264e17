// Attention of chunks over keys and values by head: wgmma, online softmax in registers.
//
// While the tensor cores work on the values of one block of keys, the scores of the next one become
// weights. Weights are rounded to bfloat16 before they meet the values; their sum is of float32.
#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/tensor_map.h"
#include "cuda/mla_prefill/chunk_keys.cuh"
#include "cuda/mla_prefill/head_attention.h"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tune/key_splits.h"

namespace quire::cuda {

namespace {

constexpr int kQueries = 128;  // of a tile, half of them a consumer's
constexpr int kPanelBytes = 128 * kPanelRowBytes;
constexpr int kKeys = static_cast<int>(kKeyBlock);
constexpr int kKeyPanels = 3;  // nope, nope, rope
constexpr int kValuePanels = 2;
constexpr int kStages = 2;
constexpr int kGroupThreads = 128;  // a warpgroup
constexpr int kConsumers = 2;
constexpr int kThreads = kGroupThreads * (kConsumers + 1);
constexpr int kConsumerWarps = kConsumers * kGroupThreads / kWarpSize;
// Together what the block is launched with, 504 for a thread of each warpgroup.
constexpr int kConsumerRegisters = 232;
constexpr int kProducerRegisters = 40;
constexpr float kLog2OfE = 1.44269504F;

struct Params {
  CUtensorMap q_nope, q_rope, k_nope, k_rope, v;
  RowTiles tiles;
  ChunkKeys keys;
  int first_block;  // of the round
  int end_block;
  bf16* out;              // [n_tokens, n_heads, v_dim]
  int64_t out_stride[2];  // elements between tokens, between heads
  HeadSums sums;          // used when there are several rounds
  SplitResults splits;    // used when n_splits is not 1
  int n_heads;
  int n_splits;
  int v_dim;
  float scale;
  float scale_log2;  // scores in powers of two
};

// A tile and the blocks of keys of this round and split that it attends to, numbered within its
// row.
struct Work {
  Tile tile;
  int first_position;
  int key_begin, key_end;
  int n_keys;         // blocks, in all rounds and splits
  int buffer_offset;  // block of the buffers that holds the row's block 0; may be negative

  __device__ bool starts() const { return key_begin == 0; }
  __device__ bool ends() const { return key_end == n_keys; }
};

struct Shared {
  alignas(1024) std::byte query[kKeyPanels * kPanelBytes];
  std::byte key[kStages][kKeyPanels * kPanelBytes];
  std::byte value[kStages][kValuePanels * kPanelBytes];
  Barrier query_full;
  Barrier key_full[kStages], key_empty[kStages];
  Barrier value_full[kStages], value_empty[kStages];
  Work work;
};
constexpr int64_t kSharedBytes = sizeof(Shared) + 1024;  // dynamic memory is aligned to 16 only

struct Turn {
  int stage;
  uint32_t parity;
};
__device__ Turn turn_of(int i) { return {i % kStages, static_cast<uint32_t>(i / kStages % 2)}; }

// By one warp.
__device__ Work find_work(const Params& p, int32_t index) {
  Work w{.tile = p.tiles.find(index)};
  if (w.tile.row < 0) return w;
  w.first_position = p.keys.position[w.tile.first_token];
  const int before = p.keys.blocks_before(w.tile.row);
  w.n_keys = (w.first_position + w.tile.n_tokens - 1) / kKeys + 1;
  w.key_begin = max(0, p.first_block - before);
  w.key_end = min(w.n_keys, p.end_block - before);
  w.buffer_offset = before - p.first_block;
  if (p.n_splits > 1) {  // of one round
    const int split = static_cast<int>(blockIdx.z);
    w.key_begin = w.n_keys * split / p.n_splits;
    w.key_end = w.n_keys * (split + 1) / p.n_splits;
  }
  return w;
}

// By one thread.
__device__ void produce(const Params& p, const Work& w, Shared& s) {
  const int head = static_cast<int>(blockIdx.x);
  const int token = w.tile.first_token;
  barrier_expect_bytes(&s.query_full, kKeyPanels * kPanelBytes);
  tensor_copy(s.query, p.q_nope, {0, head, token}, &s.query_full);
  tensor_copy(s.query + kPanelBytes, p.q_nope, {64, head, token}, &s.query_full);
  tensor_copy(s.query + 2 * kPanelBytes, p.q_rope, {0, head, token}, &s.query_full);
  for (int i = 0; i < w.key_end - w.key_begin; ++i) {
    const Turn turn = turn_of(i);
    const int row = (w.buffer_offset + w.key_begin + i) * kKeys;
    std::byte* key = s.key[turn.stage];
    Barrier* key_full = &s.key_full[turn.stage];
    barrier_wait(&s.key_empty[turn.stage], turn.parity ^ 1);
    barrier_expect_bytes(key_full, kKeyPanels * kPanelBytes);
    tensor_copy(key, p.k_nope, {0, head, row}, key_full);
    tensor_copy(key + kPanelBytes, p.k_nope, {64, head, row}, key_full);
    tensor_copy(key + 2 * kPanelBytes, p.k_rope, {0, 0, row}, key_full);
    std::byte* value = s.value[turn.stage];
    Barrier* value_full = &s.value_full[turn.stage];
    barrier_wait(&s.value_empty[turn.stage], turn.parity ^ 1);
    barrier_expect_bytes(value_full, kValuePanels * kPanelBytes);
    tensor_copy(value, p.v, {0, head, row}, value_full);
    tensor_copy(value + kPanelBytes, p.v, {64, head, row}, value_full);
  }
}

// What a thread knows of its two queries, rows g and g + 8 of its warp's sixteen.
struct Queries {
  int row[2];  // of the tile
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of the keys of this thread
};

__device__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Starts score[64 queries, 128 keys] of the warpgroup.
__device__ void start_scores(const std::byte* query, const std::byte* key, float (&score)[64]) {
  wgmma_hold(score);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4 * kKeyPanels; ++k) {
    const int at = k / 4 * kPanelBytes + k % 4 * 32;
    wgmma_m64n128k16(score, operand_of_rows(query + at), operand_of_rows(key + at),
                     k == 0 ? Sum::starts : Sum::goes_on);
  }
  wgmma_commit();
}

// Starts sum[64 queries, 128 columns] += weight value.
__device__ void start_values(const MmaA (&weight)[8], const std::byte* value, float (&sum)[64]) {
  wgmma_hold(sum);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kKeyBlock / 16; ++k) {
    wgmma_m64n128k16<OperandOf::columns>(
        sum, weight[k], operand_of_columns(value + 16 * k * kPanelRowBytes, kPanelBytes),
        Sum::goes_on);
  }
  wgmma_commit();
}

// Keys behind the query, of a block whose first key lies `ahead` before the tile's first query.
__device__ void mask(const Queries& q, int ahead, float (&score)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int key = 8 * (i / 4) + 2 * (lane_of_thread() % 4) + i % 2;
    if (key > ahead + q.row[i / 2 % 2]) score[i] = -INFINITY;
  }
}

// Scores become weights; returns what earlier sums shrink by.
__device__ float2 update_softmax(float scale_log2, Queries& q, float (&score)[64]) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = q.largest[half];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      largest = fmaxf(largest, fmaxf(score[4 * j + 2 * half], score[4 * j + 2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
    // No key yet: -inf - -inf would be NaN. NaN scores reach the weights all the same.
    const float from = largest == -INFINITY ? 0.0F : largest * scale_log2;
    shrink[half] = exp2_of(fmaf(q.largest[half], scale_log2, -from));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      float& x = score[4 * (j / 2) + 2 * half + j % 2];
      x = exp2_of(fmaf(x, scale_log2, -from));
      sum += x;
    }
    q.total[half] = fmaf(q.total[half], shrink[half], sum);
    q.largest[half] = largest;
  }
  return {shrink[0], shrink[1]};
}

// Weights as the operands of eight products of sixteen keys.
__device__ void round_weights(const float (&weight)[64], MmaA (&out)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float* w = weight + 8 * k;
    out[k] = {
        bits_of(__floats2bfloat162_rn(w[0], w[1])), bits_of(__floats2bfloat162_rn(w[2], w[3])),
        bits_of(__floats2bfloat162_rn(w[4], w[5])), bits_of(__floats2bfloat162_rn(w[6], w[7]))};
  }
}

__device__ void shrink_sums(const float2& shrink, float (&sum)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) sum[i] *= i / 2 % 2 == 0 ? shrink.x : shrink.y;
}

// Sums of earlier rounds. All lanes of a row's quad share a total: one of them takes it up.
__device__ void load_sums(const Params& p, const Work& w, Queries& q, float (&sum)[64]) {
  const int head = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (q.row[half] >= w.tile.n_tokens) continue;
    const int64_t at = int64_t{w.tile.first_token + q.row[half]} * p.n_heads + head;
    q.largest[half] = p.sums.largest[at];
    q.total[half] = lane_of_thread() % 4 == 0 ? p.sums.total[at] : 0.0F;
    const float* from = p.sums.sum + at * kHeadValueMax + 2 * (lane_of_thread() % 4);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      if (2 * (lane_of_thread() % 4) + 8 * j >= p.v_dim) break;
      const float2 pair = *reinterpret_cast<const float2*>(from + 8 * j);
      sum[4 * j + 2 * half] = pair.x;
      sum[4 * j + 2 * half + 1] = pair.y;
    }
  }
}

// Where what a tile has summed goes when another block, or round, has the rest.
struct Partial {
  float* sum;  // [v_dim] or more
  float* total;
  float* largest;
};

__device__ Partial partial_of(const Params& p, int64_t token, int head) {
  if (p.n_splits == 1) {
    const int64_t at = token * p.n_heads + head;
    return {p.sums.sum + at * kHeadValueMax, p.sums.total + at, p.sums.largest + at};
  }
  const int64_t at = p.splits.at(token, head, static_cast<int>(blockIdx.z));
  return {p.splits.sum + at * p.v_dim, p.splits.total + at, p.splits.largest + at};
}

__device__ void store(const Params& p, const Work& w, const Queries& q, const float (&sum)[64]) {
  const int head = static_cast<int>(blockIdx.x);
  const bool is_whole = p.n_splits == 1 && w.ends();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = q.total[half];
    total += __shfl_xor_sync(kFullWarp, total, 1);
    total += __shfl_xor_sync(kFullWarp, total, 2);
    if (q.row[half] >= w.tile.n_tokens) continue;
    const int64_t token = w.tile.first_token + q.row[half];
    const int first_column = 2 * (lane_of_thread() % 4);
    if (is_whole) {
      bf16* out = p.out + token * p.out_stride[0] + head * p.out_stride[1] + first_column;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (first_column + 8 * j >= p.v_dim) break;  // v_dim is a multiple of 8
        *reinterpret_cast<bf16x2*>(out + 8 * j) = __floats2bfloat162_rn(
            __fdiv_rn(sum[4 * j + 2 * half], total), __fdiv_rn(sum[4 * j + 2 * half + 1], total));
      }
      continue;
    }
    const Partial to = partial_of(p, token, head);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      if (first_column + 8 * j >= p.v_dim) break;
      *reinterpret_cast<float2*>(to.sum + first_column + 8 * j) = {sum[4 * j + 2 * half],
                                                                   sum[4 * j + 2 * half + 1]};
    }
    if (lane_of_thread() % 4 == 0) {
      *to.total = total;
      // Rounds go on with raw scores; splits meet in `combine`.
      *to.largest = p.n_splits == 1 ? q.largest[half] : q.largest[half] * p.scale;
    }
  }
}

// Scores of block i + 1 are computed, and become weights, beside the product of block i's weights
// and values.
__device__ void consume(const Params& p, const Work& w, Shared& s) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  Queries q;
  for (int half = 0; half < 2; ++half) {
    q.row[half] = 16 * warp_of_thread() + lane_of_thread() / 4 + 8 * half;
  }
  float sum[64] = {};
  if (p.n_splits == 1 && !w.starts()) load_sums(p, w, q, sum);
  const std::byte* query = s.query + group * 64 * kPanelRowBytes;
  const int n = w.key_end - w.key_begin;
  if (n == 0) {  // a split beyond the tile's keys
    store(p, w, q, sum);
    return;
  }
  const bool is_elected = lane_of_thread() == 0;
  float score[64];
  MmaA weight[8];
  const auto weigh = [&](int i) {
    const int ahead = w.first_position - (w.key_begin + i) * kKeys;
    if (ahead < kKeys - 1) mask(q, ahead, score);
    return update_softmax(p.scale_log2, q, score);
  };

  barrier_wait(&s.query_full, 0);
  barrier_wait(&s.key_full[0], 0);
  start_scores(query, s.key[0], score);
  wgmma_wait<0>();
  wgmma_hold(score);
  if (is_elected) barrier_arrive(&s.key_empty[0]);
  shrink_sums(weigh(0), sum);
  round_weights(score, weight);
  for (int i = 0; i + 1 < n; ++i) {
    const Turn now = turn_of(i);
    const Turn next = turn_of(i + 1);
    barrier_wait(&s.key_full[next.stage], next.parity);
    start_scores(query, s.key[next.stage], score);
    barrier_wait(&s.value_full[now.stage], now.parity);
    start_values(weight, s.value[now.stage], sum);
    wgmma_wait<1>();
    wgmma_hold(score);
    if (is_elected) barrier_arrive(&s.key_empty[next.stage]);
    const float2 shrink = weigh(i + 1);
    wgmma_wait<0>();
    wgmma_hold(sum);
    if (is_elected) barrier_arrive(&s.value_empty[now.stage]);
    shrink_sums(shrink, sum);
    round_weights(score, weight);
  }
  const Turn last = turn_of(n - 1);
  barrier_wait(&s.value_full[last.stage], last.parity);
  start_values(weight, s.value[last.stage], sum);
  wgmma_wait<0>();
  wgmma_hold(sum);
  store(p, w, q, sum);
}

// Work of a block: 128 queries of one head, one split of their keys. Grid (heads, tiles, splits),
// 384 threads: one thread of a warpgroup starts copies, each of two others owns 64 queries. 209 KB
// of shared memory. Moves a block of keys (48 KB) and values (32 KB) once a tile, out of the
// second-level cache, for 128 x 128 x 320 products: bound by the tensor cores.
__global__ __launch_bounds__(kThreads,
                             1) void head_attention_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::byte memory[];
  const auto base = reinterpret_cast<uintptr_t>(memory);
  Shared& s = *reinterpret_cast<Shared*>(memory + ((1024 - base % 1024) % 1024));
  if (warp_of_thread() == 0) {
    // The longest first: blocks that start late are short.
    const Work work = find_work(p, static_cast<int32_t>(gridDim.y - 1 - blockIdx.y));
    if (lane_of_thread() == 0) {
      s.work = work;
      barrier_init(&s.query_full, 1);
      for (int stage = 0; stage < kStages; ++stage) {
        barrier_init(&s.key_full[stage], 1);
        barrier_init(&s.value_full[stage], 1);
        barrier_init(&s.key_empty[stage], kConsumerWarps);
        barrier_init(&s.value_empty[stage], kConsumerWarps);
      }
      barrier_init_done();
    }
  }
  __syncthreads();
  const Work w = s.work;
  if (w.tile.row < 0 || (w.key_begin >= w.key_end && p.n_splits == 1)) return;
  if (threadIdx.x >= kConsumers * kGroupThreads) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == kConsumers * kGroupThreads) produce(p, w, s);
  } else {
    take_registers<kConsumerRegisters>();
    consume(p, w, s);
  }
}

int64_t tiles_of(const TokenRows& tokens, int64_t n_tokens, int64_t n_rows) {
  return tiles_max(n_tokens - tokens.n_lone, n_rows, kQueries);
}

}  // namespace

int64_t head_attention_splits(const Context& context, const ops::MlaPrefillAttention& args) {
  const int64_t n_rows = args.kv.table[0] - args.tokens.n_lone;
  return key_splits({.n_tokens = args.out[0],
                     .n_heads = args.out[1],
                     .n_tiles = tiles_of(args.tokens, args.out[0], n_rows),
                     .key_blocks = args.tokens.key_blocks,
                     .value_dim = args.out[2]},
                    context.n_sms);
}

void head_attention(const Context& context, const HeadAttention& args) {
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  const int64_t n_rows = args.tokens.row_begin[0] - 1;
  const View<const Bf16, 3> k_rope{.data = args.k_rope.data,
                                   .shape = {args.k_rope[0], 1, args.k_rope[1]},
                                   .stride = {args.k_rope.stride[0], args.k_rope[1], 1}};
  CHECK(args.q_nope[2] <= kHeadNopeMax && args.q_rope[2] <= kHeadRopeMax);
  CHECK(args.v[2] <= kHeadValueMax && args.v[2] % 8 == 0 && args.out.stride[0] % 2 == 0 &&
        args.out.stride[1] % 2 == 0);
  const int64_t n_tiles = tiles_of(args.tokens, n_tokens, n_rows);
  const bool is_split = args.splits.sum != nullptr;
  const TensorMapMaker maker;
  const Params p{.q_nope = maker.panels(args.q_nope, kQueries),
                 .q_rope = maker.panels(args.q_rope, kQueries),
                 .k_nope = maker.panels(args.k_nope, kKeys),
                 .k_rope = maker.panels(k_rope, kKeys),
                 .v = maker.panels(args.v, kKeys),
                 .tiles = {.row_begin = args.tokens.row_begin.data,
                           .n_rows = static_cast<int32_t>(n_rows),
                           .tile_tokens = kQueries},
                 .keys = {.row_begin = args.tokens.row_begin.data,
                          .position = args.tokens.position.data,
                          .n_rows = static_cast<int32_t>(n_rows)},
                 .first_block = static_cast<int>(args.first_block),
                 .end_block = static_cast<int>(args.first_block + args.v[0] / kKeyBlock),
                 .out = device_type(args.out.data),
                 .out_stride = {args.out.stride[0], args.out.stride[1]},
                 .sums = args.sums,
                 .splits = args.splits,
                 .n_heads = static_cast<int>(n_heads),
                 .n_splits = is_split ? static_cast<int>(args.splits.shape.n_splits) : 1,
                 .v_dim = static_cast<int>(args.v[2]),
                 .scale = args.scale,
                 .scale_log2 = args.scale * kLog2OfE};
  allow_shared_memory(head_attention_kernel, kSharedBytes);
  const dim3 grid(static_cast<unsigned>(n_heads), static_cast<unsigned>(n_tiles),
                  static_cast<unsigned>(p.n_splits));
  head_attention_kernel<<<grid, kThreads, kSharedBytes, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
  if (is_split) {
    const int64_t n_lone = args.tokens.n_lone;
    combine(context, p.splits.from(n_lone), args.out.rows(n_lone, n_tokens - n_lone));
  }
}

}  // namespace quire::cuda
