#include "base/bytes.h"
#include "base/check.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/plain.h"
#include "cuda/gemm/plain_loads.cuh"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

namespace {

constexpr int kColumnTiles = 2;  // of 8 tokens
constexpr int kTokens = 8 * kColumnTiles;
constexpr int kOutputs = 16;
constexpr int kWarps = 8;  // share the sum over k
constexpr int kThreads = kWarps * kWarpSize;

using Sums = float[kColumnTiles][4];

// acc += scale * part, part = 0.
__device__ void fold(Sums& acc, Sums& part, float low, float high) {
  for (int tile = 0; tile < kColumnTiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      acc[tile][i] = fmaf(i < 2 ? low : high, part[tile][i], acc[tile][i]);
      part[tile][i] = 0;
    }
  }
}

// Work of a block: 16 outputs of 16 tokens; its warps split k. Outputs are the rows of the
// tensor-core tile, tokens its columns. Grid (token tiles, output tiles), 256 threads, 8 KiB of
// shared memory. Moves the weights once for each tile of tokens, a value at a time: bound by the
// latency of loads.
template <WeightFormat kFormat>
__global__ __launch_bounds__(kThreads) void plain_kernel(const __grid_constant__ ThinProduct p) {
  __shared__ float shared[kWarps][kOutputs][kTokens];
  const ThinSide& side = p.sides[0];
  const WeightRef& weight = side.weight;
  const int g = lane_of_thread() / 4;  // row of A and column of B
  const int t = lane_of_thread() % 4;  // pair of columns of D
  const int64_t first_output = int64_t{blockIdx.y} * kOutputs;
  const int64_t first_token = int64_t{blockIdx.x} * kTokens;
  // Rows past the end read the last one, and are not written.
  const int64_t low_row = min(first_output + g, side.n_out - 1);
  const int64_t high_row = min(first_output + g + 8, side.n_out - 1);
  const auto* values = static_cast<const std::byte*>(weight.values);
  const std::byte* low_values = values + low_row * weight.value_stride;
  const std::byte* high_values = values + high_row * weight.value_stride;
  const bf16* x[kColumnTiles];
  const float* x_scale[kColumnTiles][2];
  for (int tile = 0; tile < kColumnTiles; ++tile) {
    const int64_t token = first_token + 8 * tile + g;
    x[tile] =
        token < p.n_tokens ? reinterpret_cast<const bf16*>(p.x) + token * p.x_stride : nullptr;
    for (int i = 0; i < 2; ++i) {
      const int64_t column = min(first_token + 8 * tile + 2 * t + i, p.n_tokens - 1);
      x_scale[tile][i] = p.x_scale != nullptr ? p.x_scale + column * p.x_scale_stride : nullptr;
    }
  }

  Sums acc = {};
  Sums part = {};
  const int64_t n_blocks = (p.n_in + kFp8Block - 1) / kFp8Block;  // of k
  const int64_t block_end = n_blocks * (warp_of_thread() + 1) / kWarps;
  for (int64_t block = n_blocks * warp_of_thread() / kWarps; block < block_end; ++block) {
#pragma unroll
    for (int chunk = 0; chunk < kFp8Block / kChunk; ++chunk) {
      const int64_t chunk_k = block * kFp8Block + chunk * kChunk;
      if (chunk_k >= p.n_in) break;
      const int64_t k = chunk_k + kLaneValues * t;
      const Eight low = load_weights<kFormat>(low_values, k, p.n_in);
      const Eight high = load_weights<kFormat>(high_values, k, p.n_in);
      const MmaA first_half{low.pair[0], high.pair[0], low.pair[1], high.pair[1]};
      const MmaA second_half{low.pair[2], high.pair[2], low.pair[3], high.pair[3]};
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; ++tile) {
        Eight b{};
        if (x[tile] != nullptr) b = load_bf16(x[tile], k, p.n_in);
        mma_bf16(part[tile], first_half, b.pair[0], b.pair[1]);
        mma_bf16(part[tile], second_half, b.pair[2], b.pair[3]);
      }
      if constexpr (kFormat == WeightFormat::int4_group) {
        const auto* scales = static_cast<const bf16*>(weight.scales) + chunk_k / p.group;
        fold(acc, part, __bfloat162float(scales[low_row * weight.scale_stride]),
             __bfloat162float(scales[high_row * weight.scale_stride]));
      }
    }
    if constexpr (kFormat == WeightFormat::fp8_block128) {
      // The 16 rows of a block lie in one block of 128.
      const float scale = static_cast<const float*>(
          weight.scales)[first_output / kFp8Block * weight.scale_stride + block];
      if (p.x_scale != nullptr) {
        for (int tile = 0; tile < kColumnTiles; ++tile) {
          for (int i = 0; i < 4; ++i) part[tile][i] *= x_scale[tile][i % 2][block];
        }
      }
      fold(acc, part, scale, scale);
    }
  }
  if constexpr (kFormat == WeightFormat::bf16) fold(acc, part, 1.0F, 1.0F);

  for (int tile = 0; tile < kColumnTiles; ++tile) {
    for (int i = 0; i < 4; ++i) {
      shared[warp_of_thread()][g + (i < 2 ? 0 : 8)][8 * tile + 2 * t + i % 2] = acc[tile][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kOutputs * kTokens; i += kThreads) {
    const int64_t output = first_output + i % kOutputs;
    const int64_t token = first_token + i / kOutputs;
    if (output >= side.n_out || token >= p.n_tokens) continue;
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp][i % kOutputs][i / kOutputs];
    const int64_t to = token * side.out_stride + output;
    if (side.out != nullptr) {
      reinterpret_cast<bf16*>(side.out)[to] = __float2bfloat16_rn(sum);
    } else {
      side.out_f32[to] = sum;
    }
  }
}

template <WeightFormat kFormat>
void launch_format(const Context& context, const ThinProduct& p) {
  const dim3 grid(static_cast<unsigned>(div_up(p.n_tokens, int64_t{kTokens})),
                  static_cast<unsigned>(div_up(p.sides[0].n_out, int64_t{kOutputs})));
  plain_kernel<kFormat><<<grid, kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace

void multiply_plain(const Context& context, const ThinProduct& product) {
  CHECK(product.n_sides == 1);
  switch (product.format) {
    case WeightFormat::bf16:
      return launch_format<WeightFormat::bf16>(context, product);
    case WeightFormat::fp8_block128:
      return launch_format<WeightFormat::fp8_block128>(context, product);
    case WeightFormat::int4_group:
      return launch_format<WeightFormat::int4_group>(context, product);
  }
}

}  // namespace quire::cuda
