#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/blas.h"
#include "cuda/gemm/head_products.h"
#include "cuda/pointwise/rotate.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kTokens = 16;  // of a block: the rows of a tensor-core product
constexpr int kPad = 8;      // values: rows of a tile begin in different banks

// A tile of weights as it is stored. A head's whole sum, for the shapes of the Kimi and GLM models,
// is one or two turns of kDepth inputs: all of its bytes are asked for at once.
template <WeightOrder kOrder>
struct HeadTile;
template <>
struct HeadTile<WeightOrder::in_out> {
  static constexpr int kDepth = 128;
  static constexpr int kOutputs = 64;
  static constexpr int kRows = kDepth;
  static constexpr int kColumns = kOutputs;
};
template <>
struct HeadTile<WeightOrder::out_in> {
  static constexpr int kDepth = 512;
  static constexpr int kOutputs = 32;
  static constexpr int kRows = kOutputs;
  static constexpr int kColumns = kDepth;
};

template <WeightOrder kOrder>
constexpr int64_t shared_bytes() {
  using Tile = HeadTile<kOrder>;
  return 2 * (Tile::kRows * (Tile::kColumns + kPad) + kTokens * (Tile::kDepth + kPad));
}

struct Params {
  bf16* out;              // [n_tokens, n_heads, n_out]
  const bf16* x;          // [n_tokens, n_heads, n_in]
  const bf16* w;          // [n_heads, n_in, n_out] or [n_heads, n_out, n_in]
  int64_t out_stride[2];  // elements between tokens, between heads
  int64_t x_stride[2];
  int64_t w_stride[2];  // between heads, between rows
  int64_t n_tokens;
  int n_out;
  int n_in;
  bool is_aligned;   // rows of x and w can be read 16 bytes at a time
  bool out_is_even;  // pairs of outputs can be stored at once
  Rotation rotation;
};

// kRows rows of kColumns values, zeros past the `n_columns` and `n_rows` that there are.
template <int kRows, int kColumns>
__device__ void copy_tile(const bf16* from, int64_t stride, int n_rows, int n_columns, bf16* to,
                          bool is_aligned) {
  constexpr int kVectors = kColumns / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kVectors; i += kThreads) {
    const int row = i / kVectors;
    const int column = i % kVectors * 8;
    bf16* at = to + row * (kColumns + kPad) + column;
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

// sums += 32 inputs of the block's tokens with the warp's outputs. in_out: a sum for each of two
// tiles of 8 outputs; out_in: two sums of one tile, which are added in the end.
template <WeightOrder kOrder>
__device__ void add_inputs(const bf16* weights, const bf16* x, int k, float (&sums)[2][4]) {
  using Tile = HeadTile<kOrder>;
  constexpr int kPitch = Tile::kColumns + kPad;
  const int tile = lane_of_thread() / 8;
  const int row = lane_of_thread() % 8;
  const bf16* x_at = x + (tile % 2 * 8 + row) * (Tile::kDepth + kPad) + k + tile / 2 * 8;
  const MmaA low = load_tiles(x_at);
  const MmaA high = load_tiles(x_at + 16);
  if constexpr (kOrder == WeightOrder::in_out) {
    const bf16* at =
        weights + (k + tile % 2 * 8 + row) * kPitch + 16 * warp_of_thread() + tile / 2 * 8;
    const MmaA first = load_transposed(at);
    const MmaA second = load_transposed(at + 16 * kPitch);
    mma_bf16(sums[0], low, first.a0, first.a1);
    mma_bf16(sums[1], low, first.a2, first.a3);
    mma_bf16(sums[0], high, second.a0, second.a1);
    mma_bf16(sums[1], high, second.a2, second.a3);
  } else {
    const MmaA w = load_tiles(weights + (8 * warp_of_thread() + row) * kPitch + k + 8 * tile);
    mma_bf16(sums[0], low, w.a0, w.a1);
    mma_bf16(sums[1], high, w.a2, w.a3);
  }
}

// Eight outputs of the warp from `output` on: of tokens g and g + 8, two a lane.
__device__ void store_tile(const Params& p, bf16* out, int n_tokens, int output,
                           const float (&sums)[4]) {
  output += lane_of_thread() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = lane_of_thread() / 4 + 8 * half;
    if (token >= n_tokens) continue;
    bf16* at = out + token * p.out_stride[0] + output;
    const bf16x2 pair = __floats2bfloat162_rn(sums[2 * half], sums[2 * half + 1]);
    if (p.out_is_even && output + 1 < p.n_out) {
      *reinterpret_cast<bf16x2*>(at) = pair;
      continue;
    }
    if (output < p.n_out) at[0] = pair.x;
    if (output + 1 < p.n_out) at[1] = pair.y;
  }
}

// Work of a block: kOutputs outputs of a head for up to 16 tokens; the blocks of a head also share
// out the rotation of these tokens' other part. Grid (outputs / kOutputs, heads, tokens / 16), 128
// threads, 23 or 50 KB of shared memory. Moves 2 * n_in * n_out bytes a head and
// 2 * (n_in + n_out) a token and head: bound by the launch and one turn of memory. k runs in one
// order for every token.
template <WeightOrder kOrder>
__global__ __launch_bounds__(kThreads) void head_product_kernel(const __grid_constant__ Params p) {
  using Tile = HeadTile<kOrder>;
  extern __shared__ __align__(128) bf16 head_shared[];
  bf16* weights = head_shared;
  bf16* x_tile = weights + Tile::kRows * (Tile::kColumns + kPad);
  const int64_t head = blockIdx.y;
  const int first_out = static_cast<int>(blockIdx.x) * Tile::kOutputs;
  const int64_t first_token = int64_t{blockIdx.z} * kTokens;
  const int n_tokens = static_cast<int>(min(p.n_tokens - first_token, int64_t{kTokens}));
  constexpr bool kInOut = kOrder == WeightOrder::in_out;
  const bf16* w = p.w + head * p.w_stride[0] + (kInOut ? first_out : first_out * p.w_stride[1]);
  const bf16* x = p.x + first_token * p.x_stride[0] + head * p.x_stride[1];
  let_next_kernel_begin();
  float sums[2][4] = {};
  for (int k0 = 0; k0 < p.n_in; k0 += Tile::kDepth) {
    if (k0 > 0) __syncthreads();  // the tiles of the turn before were read
    const int inputs = p.n_in - k0;
    const int outputs = p.n_out - first_out;
    copy_tile<Tile::kRows, Tile::kColumns>(w + k0 * (kInOut ? p.w_stride[1] : 1), p.w_stride[1],
                                           kInOut ? inputs : outputs, kInOut ? outputs : inputs,
                                           weights, p.is_aligned);
    if (k0 == 0) wait_for_earlier_kernels();
    copy_tile<kTokens, Tile::kDepth>(x + k0, p.x_stride[0], n_tokens, inputs, x_tile, p.is_aligned);
    commit_copies();
    if (kInOut && k0 == 0 && p.rotation.x != nullptr) {
      rotate(p.rotation, first_token, n_tokens, static_cast<int>(head));
    }
    wait_for_copies<0>();
    __syncthreads();
    // Zeros lie behind the inputs that there are.
    const int depth = min(Tile::kDepth, (inputs + 31) / 32 * 32);
#pragma unroll 4
    for (int k = 0; k < depth; k += 32) add_inputs<kOrder>(weights, x_tile, k, sums);
  }
  bf16* out = p.out + first_token * p.out_stride[0] + head * p.out_stride[1];
  if constexpr (kInOut) {
    store_tile(p, out, n_tokens, first_out + 16 * warp_of_thread(), sums[0]);
    store_tile(p, out, n_tokens, first_out + 16 * warp_of_thread() + 8, sums[1]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][i] += sums[1][i];
    store_tile(p, out, n_tokens, first_out + 8 * warp_of_thread(), sums[0]);
  }
}

template <class T, int Rank>
bool is_at_16(const View<T, Rank>& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride[0] % 8 == 0 &&
         v.stride[1] % 8 == 0;
}

template <WeightOrder kOrder>
void launch_heads(const Context& context, const View<Bf16, 3>& out, const View<const Bf16, 3>& x,
                  const View<const Bf16, 3>& w, const Rotation& rotation) {
  const Params p{.out = device_type(out.data),
                 .x = device_type(x.data),
                 .w = device_type(w.data),
                 .out_stride = {out.stride[0], out.stride[1]},
                 .x_stride = {x.stride[0], x.stride[1]},
                 .w_stride = {w.stride[0], w.stride[1]},
                 .n_tokens = out[0],
                 .n_out = static_cast<int>(out[2]),
                 .n_in = static_cast<int>(x[2]),
                 .is_aligned = is_at_16(x) && is_at_16(w),
                 .out_is_even = reinterpret_cast<uintptr_t>(out.data) % 4 == 0 &&
                                out.stride[0] % 2 == 0 && out.stride[1] % 2 == 0,
                 .rotation = rotation};
  const int64_t token_tiles = div_up(out[0], kTokens);
  CHECK(out[1] < 65536 && token_tiles < 65536);  // grid.y, grid.z
  const int64_t of_head = div_up(out[2], HeadTile<kOrder>::kOutputs);
  // Behind attention, whose blocks end one after the other: several of these would begin on the
  // first multiprocessors that are free. With one token half of those are free all the time.
  const bool is_alone = kOrder == WeightOrder::out_in && out[0] > 1 &&
                        of_head * out[1] * token_tiles <= context.n_sms;
  launch(context.stream,
         {.grid = dim3(static_cast<unsigned>(of_head), static_cast<unsigned>(out[1]),
                       static_cast<unsigned>(token_tiles)),
          .threads = kThreads,
          .shared_bytes = shared_bytes<kOrder>(),
          .blocks_of_sm = is_alone ? 1 : 0},
         head_product_kernel<kOrder>, p);
}

}  // namespace

void launch_absorb(const Context& context, const ops::AbsorbQuery& args) {
  const Rotation rotation = args.q_rope.data == nullptr
                                ? Rotation{}
                                : rotation_of(args.q_rope, args.positions, args.cos, args.sin);
  launch_heads<WeightOrder::in_out>(context, args.out, args.q_nope, args.w_uk, rotation);
}

void launch_expand(const Context& context, const ops::ExpandValue& args) {
  launch_heads<WeightOrder::out_in>(context, args.out, args.x, args.w_uv, {});
}

}  // namespace quire::cuda
