#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/absorb.h"
#include "cuda/pointwise/rotate.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = 64;  // 16 a warp
constexpr int kTokens = 64;   // of a block, at most
constexpr int kDepth = 128;   // inputs at a time
constexpr int kPad = 8;       // values: rows of a tile begin in different banks
constexpr int kWeightRow = kOutputs + kPad;
constexpr int kQueryRow = kDepth + kPad;

struct Params {
  bf16* out;              // [n_tokens, n_heads, n_out]
  const bf16* q;          // [n_tokens, n_heads, n_in]
  const bf16* w;          // [n_heads, n_in, n_out]
  int64_t out_stride[2];  // elements between tokens, between heads
  int64_t q_stride[2];
  int64_t w_stride[2];  // between heads, between inputs
  int64_t n_tokens;
  int n_out;
  int n_in;
  bool is_aligned;  // rows of q and w can be read 16 bytes at a time
  Rotation rotation;
};

// to[i] = columns [first, first + kColumns) of row i, zeros past `n` of them and past the last row.
template <int kColumns, int kPitch>
__device__ void copy_tile(const bf16* from, int64_t stride, int n_rows, int n_columns, bf16* to,
                          int rows, bool is_aligned) {
  constexpr int kVectors = kColumns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kVectors; i += kThreads) {
    const int row = i / kVectors;
    const int column = i % kVectors * 8;
    bf16* at = to + row * kPitch + column;
    const int left = row < n_rows ? min(max(n_columns - column, 0), 8) : 0;
    if (is_aligned) {
      copy_async_16(shared_address(at), left == 0 ? from : from + row * stride + column, 2 * left);
      continue;
    }
    for (int c = 0; c < 8; ++c) {
      at[c] = c < left ? from[row * stride + column + c] : __ushort_as_bfloat16(0);
    }
  }
}

// Work of a block: 64 outputs of a head for up to 64 tokens; the first block of a head also rotates
// these tokens' other part. Grid (outputs / 64, heads, tokens / 64), 128 threads, 35 KB of shared
// memory. Moves 2 * n_in * n_out bytes a head and 2 * (n_in + n_out) a token and head: bound by the
// launch up to 64 tokens. k runs in one order for every token.
__global__ __launch_bounds__(kThreads) void absorb_kernel(const __grid_constant__ Params p) {
  __shared__ __align__(128) bf16 weights[kDepth * kWeightRow];
  __shared__ __align__(128) bf16 queries[kTokens * kQueryRow];
  const int64_t head = blockIdx.y;
  const int first_out = static_cast<int>(blockIdx.x) * kOutputs;
  const int64_t first_token = int64_t{blockIdx.z} * kTokens;
  const int n_tokens = static_cast<int>(min(p.n_tokens - first_token, int64_t{kTokens}));
  const int n_tiles = (n_tokens + 7) / 8;
  const bf16* w = p.w + head * p.w_stride[0] + first_out;
  const bf16* q = p.q + first_token * p.q_stride[0] + head * p.q_stride[1];
  const int lane = lane_of_thread();
  const int first_row = 16 * warp_of_thread();
  let_next_kernel_begin();
  float acc[kTokens / 8][4] = {};
  for (int k0 = 0; k0 < p.n_in; k0 += kDepth) {
    if (k0 > 0) __syncthreads();  // the tiles of the turn before were read
    copy_tile<kOutputs, kWeightRow>(w + int64_t{k0} * p.w_stride[1], p.w_stride[1], p.n_in - k0,
                                    p.n_out - first_out, weights, kDepth, p.is_aligned);
    if (k0 == 0) wait_for_earlier_kernels();
    copy_tile<kDepth, kQueryRow>(q + k0, p.q_stride[0], n_tokens, p.n_in - k0, queries, 8 * n_tiles,
                                 p.is_aligned);
    commit_copies();
    if (k0 == 0 && blockIdx.x == 0 && p.rotation.x != nullptr) {
      rotate(p.rotation, first_token, n_tokens, static_cast<int>(head), kThreads);
    }
    wait_for_copies<0>();
    __syncthreads();
    for (int k = 0; k < min(kDepth, p.n_in - k0); k += 16) {
      // Tile l / 8 of the fragment: k + 8 * (tile / 2), outputs + 8 * (tile % 2).
      const int tile = lane / 8;
      const MmaA a = load_transposed(weights + (k + tile / 2 * 8 + lane % 8) * kWeightRow +
                                     first_row + tile % 2 * 8);
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        if (j >= n_tiles) break;
        const bf16* x = queries + (8 * j + lane / 4) * kQueryRow + k + lane % 4 * 2;
        mma_bf16(acc[j], a, *reinterpret_cast<const uint32_t*>(x),
                 *reinterpret_cast<const uint32_t*>(x + 8));
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int output = first_out + first_row + lane / 4 + (i < 2 ? 0 : 8);
      const int token = 8 * j + lane % 4 * 2 + i % 2;
      if (output < p.n_out && token < n_tokens) {
        p.out[(first_token + token) * p.out_stride[0] + head * p.out_stride[1] + output] =
            __float2bfloat16_rn(acc[j][i]);
      }
    }
  }
}

bool is_at_8(const void* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

void launch_absorb(const Context& context, const ops::AbsorbQuery& args) {
  CHECK(args.out[1] < 65536);
  const Params p{.out = device_type(args.out.data),
                 .q = device_type(args.q_nope.data),
                 .w = device_type(args.w_uk.data),
                 .out_stride = {args.out.stride[0], args.out.stride[1]},
                 .q_stride = {args.q_nope.stride[0], args.q_nope.stride[1]},
                 .w_stride = {args.w_uk.stride[0], args.w_uk.stride[1]},
                 .n_tokens = args.out[0],
                 .n_out = static_cast<int>(args.out[2]),
                 .n_in = static_cast<int>(args.q_nope[2]),
                 .is_aligned = is_at_8(args.q_nope.data, args.q_nope.stride[0]) &&
                               args.q_nope.stride[1] % 8 == 0 &&
                               is_at_8(args.w_uk.data, args.w_uk.stride[1]) &&
                               args.w_uk.stride[0] % 8 == 0,
                 .rotation = args.q_rope.data == nullptr
                                 ? Rotation{}
                                 : rotation_of(args.q_rope, args.positions, args.cos, args.sin)};
  launch(context.stream,
         {.grid = dim3(static_cast<unsigned>(div_up(args.out[2], kOutputs)),
                       static_cast<unsigned>(args.out[1]),
                       static_cast<unsigned>(div_up(args.out[0], kTokens))),
          .threads = kThreads},
         absorb_kernel, p);
}

}  // namespace quire::cuda
