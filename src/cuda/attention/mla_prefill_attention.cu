// Causal attention of a sequence over its own keys and values by head, tensor cores, online
// softmax.
//
// Weights are split in two bfloat16 parts before they meet the values, as in mla_attention.cu.
#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kTile = 64;  // queries of a block, keys of a step
constexpr int kKeyTiles = kTile / 8;
constexpr int kNopeMax = 256;
constexpr int kRopeMax = 64;
constexpr int kValueMax = 256;
constexpr int kPad = 8;  // bfloat16: rows begin in different banks

// Rows of one head: row r begins at data + r * stride.
struct Rows {
  const bf16* data;
  int64_t stride;       // elements between tokens
  int64_t head_stride;  // elements between heads; 0: shared by all
  int dim;
  bool is_aligned;  // 16-byte rows and heads, dim a multiple of 8
};

struct Params {
  Rows q_nope, q_rope, k_nope, k_rope, v;
  bf16* out;              // [n_tokens, n_heads, v.dim]
  int64_t out_stride[2];  // elements between tokens, between heads
  float* lse;             // [n_tokens, n_heads], or null
  int64_t lse_stride;     // elements between tokens
  int64_t n_tokens;
  float scale;

  // Padded to whole tensor-core steps, with zeros.
  __host__ __device__ int nope_padded() const { return (q_nope.dim + 15) / 16 * 16; }
  __host__ __device__ int rope_padded() const { return (q_rope.dim + 15) / 16 * 16; }
  __host__ __device__ int value_padded() const { return (v.dim + 15) / 16 * 16; }
  __host__ __device__ int key_row() const { return nope_padded() + rope_padded() + kPad; }
  __host__ __device__ int value_row() const { return value_padded() + kPad; }
};

// to[i, 0 .. dim) = row first + i, zeros past the last token. `row` is the stride of `to`.
__device__ void load_tile(const Rows& from, int64_t head, int64_t first, int64_t n_tokens, bf16* to,
                          int row) {
  const bf16* data = from.data + head * from.head_stride;
  if (from.is_aligned) {
    const int vectors = from.dim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * vectors; i += kThreads) {
      const int64_t token = first + i / vectors;
      uint4 v{0, 0, 0, 0};
      if (token < n_tokens) {
        v = reinterpret_cast<const uint4*>(data + token * from.stride)[i % vectors];
      }
      reinterpret_cast<uint4*>(to + i / vectors * row)[i % vectors] = v;
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTile * from.dim; i += kThreads) {
    const int64_t token = first + i / from.dim;
    to[i / from.dim * row + i % from.dim] =
        token < n_tokens ? data[token * from.stride + i % from.dim] : __ushort_as_bfloat16(0);
  }
}

// The sum over the four lanes that share a row of the tile; the largest of them.
__device__ float quad_sum(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}
__device__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kFullWarp, x, 2));
}

// score[tile][i] of the warp's 16 queries and the step's 64 keys.
__device__ void compute_scores(const Params& p, const bf16* query, const bf16* key,
                               float (&score)[kKeyTiles][4]) {
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  const int row = p.key_row();
  const int first = 16 * warp_of_thread();
  for (int k = 0; k < p.nope_padded() + p.rope_padded(); k += 16) {
    const auto* low = reinterpret_cast<const uint2*>(query + (first + g) * row + k + 4 * t);
    const auto* high = reinterpret_cast<const uint2*>(query + (first + g + 8) * row + k + 4 * t);
    const MmaA a{low->x, high->x, low->y, high->y};
#pragma unroll
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      const auto* b = reinterpret_cast<const uint2*>(key + (8 * tile + g) * row + k + 4 * t);
      mma_bf16(score[tile], a, b->x, b->y);
    }
  }
}

// What a lane knows of its two query rows, g and g + 8 of its warp.
struct RowState {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};
};

// Turns scores into weights; returns by what earlier sums shrink.
__device__ float2 update_softmax(float (&score)[kKeyTiles][4], RowState* state) {
  float shrink[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = state->largest[half];
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      largest = fmaxf(largest, fmaxf(score[tile][2 * half], score[tile][2 * half + 1]));
    }
    largest = quad_max(largest);
    float sum = 0;
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[tile][i] = expf(score[tile][i] - largest);
        sum += score[tile][i];
      }
    }
    shrink[half] = expf(state->largest[half] - largest);
    state->total[half] = state->total[half] * shrink[half] + quad_sum(sum);
    state->largest[half] = largest;
  }
  return {shrink[0], shrink[1]};
}

struct SplitWeights {
  MmaA high, low;
};

// Sixteen keys of weights as an operand, from the two tiles that hold them.
__device__ SplitWeights split(const float (&first)[4], const float (&second)[4]) {
  SplitWeights out;
  uint32_t high[4];
  uint32_t low[4];
  for (int i = 0; i < 4; ++i) {
    const float* w = (i < 2 ? first : second) + 2 * (i % 2);
    const bf16x2 rounded = __floats2bfloat162_rn(w[0], w[1]);
    const float2 back = __bfloat1622float2(rounded);
    high[i] = bits_of(rounded);
    low[i] = bits_of(__floats2bfloat162_rn(w[0] - back.x, w[1] - back.y));
  }
  out.high = {high[0], high[1], high[2], high[3]};
  out.low = {low[0], low[1], low[2], low[3]};
  return out;
}

// Work of a block: 64 queries of one head, 16 a warp. Grid (query tiles, heads), 128 threads, about
// 67 KB of shared memory at 192 + 128. Reads each key and value once for every 64 queries: bound by
// the loads it waits for. H200, 2026-11-29: 1,011 us for 8 heads and 4,096 tokens.
__global__ __launch_bounds__(kThreads) void prefill_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) std::byte memory[];
  auto* query = reinterpret_cast<bf16*>(memory);  // [64, key_row]
  bf16* key = query + kTile * p.key_row();        // [64, key_row]
  bf16* value = key + kTile * p.key_row();        // [64, value_row]
  const int64_t head = blockIdx.y;
  // The longest rows first: blocks that start late are short.
  const int64_t query_tile = int64_t{gridDim.x} - 1 - blockIdx.x;
  const int64_t first_query = query_tile * kTile;
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  const int64_t my_query = first_query + 16 * warp_of_thread() + g;  // and this + 8

  const int shared_values = kTile * (2 * p.key_row() + p.value_row());
  for (int i = static_cast<int>(threadIdx.x); i < shared_values; i += kThreads) {
    query[i] = __ushort_as_bfloat16(0);
  }
  __syncthreads();
  load_tile(p.q_nope, head, first_query, p.n_tokens, query, p.key_row());
  load_tile(p.q_rope, head, first_query, p.n_tokens, query + p.nope_padded(), p.key_row());

  RowState state;
  float sum[kValueMax / 8][4] = {};
  for (int64_t first_key = 0; first_key <= first_query; first_key += kTile) {
    __syncthreads();  // the step before was used
    load_tile(p.k_nope, head, first_key, p.n_tokens, key, p.key_row());
    load_tile(p.k_rope, head, first_key, p.n_tokens, key + p.nope_padded(), p.key_row());
    load_tile(p.v, head, first_key, p.n_tokens, value, p.value_row());
    __syncthreads();
    float score[kKeyTiles][4] = {};
    compute_scores(p, query, key, score);
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      for (int i = 0; i < 4; ++i) {
        const int64_t at_key = first_key + 8 * tile + 2 * t + i % 2;
        const int64_t at_query = my_query + (i < 2 ? 0 : 8);
        score[tile][i] = at_key <= at_query ? score[tile][i] * p.scale : -INFINITY;
      }
    }
    const float2 shrink = update_softmax(score, &state);
#pragma unroll
    for (int tile = 0; tile < kValueMax / 8; ++tile) {
      for (int i = 0; i < 4; ++i) sum[tile][i] *= i < 2 ? shrink.x : shrink.y;
    }
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k) {
      const SplitWeights weights = split(score[2 * k], score[2 * k + 1]);
      const int lane = lane_of_thread();
      const int at_key = 16 * k + lane % 8 + (lane / 8 % 2) * 8;
#pragma unroll
      for (int tile = 0; tile < kValueMax / 16; ++tile) {
        if (16 * tile >= p.v.dim) break;
        // 8x8 tiles of value[key, v]: two of keys for each of two of v.
        const MmaA b =
            load_transposed(value + at_key * p.value_row() + 16 * tile + (lane / 16) * 8);
        mma_bf16(sum[2 * tile], weights.high, b.a0, b.a1);
        mma_bf16(sum[2 * tile], weights.low, b.a0, b.a1);
        mma_bf16(sum[2 * tile + 1], weights.high, b.a2, b.a3);
        mma_bf16(sum[2 * tile + 1], weights.low, b.a2, b.a3);
      }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t token = my_query + 8 * half;
    if (token >= p.n_tokens) continue;
    bf16* out = p.out + token * p.out_stride[0] + head * p.out_stride[1];
#pragma unroll
    for (int tile = 0; tile < kValueMax / 8; ++tile) {
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * tile + 2 * t + i;
        if (column >= p.v.dim) continue;
        out[column] = __float2bfloat16_rn(__fdiv_rn(sum[tile][2 * half + i], state.total[half]));
      }
    }
    if (p.lse != nullptr && t == 0) {
      p.lse[token * p.lse_stride + head] = state.largest[half] + logf(state.total[half]);
    }
  }
}

Rows rows_of(const View<const Bf16, 3>& v) {
  return {.data = device_type(v.data),
          .stride = v.stride[0],
          .head_stride = v.stride[1],
          .dim = static_cast<int>(v[2]),
          .is_aligned = reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride[0] % 8 == 0 &&
                        v.stride[1] % 8 == 0 && v[2] % 8 == 0};
}

}  // namespace

void mla_prefill_attention(const Context& context, const ops::MlaPrefillAttention& args) {
  CHECK(args.q_nope[2] <= kNopeMax && args.q_rope[2] <= kRopeMax && args.v[2] <= kValueMax);
  const View<const Bf16, 3> k_rope{.data = args.k_rope.data,
                                   .shape = {args.k_rope[0], 1, args.k_rope[1]},
                                   .stride = {args.k_rope.stride[0], 0, 1}};
  const Params p{.q_nope = rows_of(args.q_nope),
                 .q_rope = rows_of(args.q_rope),
                 .k_nope = rows_of(args.k_nope),
                 .k_rope = rows_of(k_rope),
                 .v = rows_of(args.v),
                 .out = device_type(args.out.data),
                 .out_stride = {args.out.stride[0], args.out.stride[1]},
                 .lse = args.lse.data,
                 .lse_stride = args.lse.stride[0],
                 .n_tokens = args.out[0],
                 .scale = args.scale};
  const size_t shared = static_cast<size_t>(kTile) *
                        static_cast<size_t>(2 * p.key_row() + p.value_row()) * sizeof(bf16);
  CUDA_MUST(cudaFuncSetAttribute(prefill_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared)));
  const dim3 grid(static_cast<unsigned>(div_up(args.out[0], kTile)),
                  static_cast<unsigned>(args.out[1]));
  prefill_kernel<<<grid, kThreads, shared, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
