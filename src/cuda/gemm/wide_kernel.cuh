// The kernel of wide products (gemm/wide.h). Included by the file that instantiates each format.
#pragma once

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/tensor_map.h"
#include "cuda/gemm/wide_consume.cuh"
#include "cuda/gemm/wide_finish.cuh"
#include "cuda/gemm/wide_produce.cuh"

namespace quire::cuda {

// Work of a block: 128 outputs of one side, kTokens tokens, a share of k; a cluster has
// all of k. Grid (cluster * row tiles, token tiles), 288 threads: eight warps multiply, in
// two warpgroups of 64 outputs, and one copies. Up to 110 KB of shared memory with tiles of 32 or
// 64 tokens, 224 KB with 128. Moves the weights once for each tile of tokens, the tokens once for
// each tile of rows: bound by memory for a few tiles of tokens, by the tensor cores for many.
template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocks) void wide_kernel(
    const __grid_constant__ WideParams params) {
  extern __shared__ std::byte wide_shared[];
  const WideShared<Tile> shared(wide_shared);
  let_next_kernel_begin();
  const WidePlace place = wide_place<Tile>(params);
  if (threadIdx.x == 0) {
    prefetch_tensor_map(params.weights[place.side]);
    prefetch_tensor_map(params.x);
    // Of the copying warp: the thread that announces bytes, and its lanes' scales.
    const uint32_t n_copies = 1 + (Tile::kScaleBytes > 0 ? kWarpSize : 0);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      barrier_init(shared.full(stage), n_copies);
      barrier_init(shared.empty(stage), Tile::kConsumers);
    }
    barrier_init_done();
  }
  __syncthreads();
  float acc[Tile::kValues] = {};
  if (warp_of_thread() == Tile::kConsumers) {
    produce<Tile>(params, place, shared);
  } else {
    consume<Tile>(params.product, place, shared, acc);
  }
  finish_wide<Tile>(params.product, place, shared.sums(), acc);
}

template <WeightFormat kFormat>
CUtensorMap wide_weight_map(const TensorMapMaker& maker, const ThinProduct& p,
                            const ThinSide& side) {
  constexpr bool kIsBf16 = kFormat == WeightFormat::bf16;
  constexpr int kRowBytes = WideFormat<kFormat>::kRowBytes;
  return maker.map_of(
      {.data = side.weight.values,
       .type = kIsBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
       .shape = {kFormat == WeightFormat::int4_group ? p.n_in / 2 : p.n_in, side.n_out, 1},
       .stride_bytes = {side.weight.value_stride, side.weight.value_stride},
       .box = {kIsBf16 ? kRowBytes / 2 : kRowBytes, kWideRows, 1},
       .swizzle = kRowBytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B});
}

template <WeightFormat kFormat, int kTokens>
void launch_wide_tile(const Context& context, const ThinProduct& product, int splits) {
  using Tile = WideTile<kFormat, kTokens>;
  const TensorMapMaker maker;
  WideParams params{.product = product};
  int64_t tiles = 0;
  for (int i = 0; i < product.n_sides; ++i) {
    params.weights[i] = wide_weight_map<kFormat>(maker, product, product.sides[i]);
    tiles += div_up(product.sides[i].n_out, int64_t{Tile::kRows});
  }
  params.tiles_of_first =
      static_cast<int32_t>(div_up(product.sides[0].n_out, int64_t{Tile::kRows}));
  params.x = maker.panels({.data = product.x,
                           .shape = {product.n_tokens, 1, product.n_in},
                           .stride = {product.x_stride, product.x_stride, 1}},
                          kTokens);
  const int64_t blocks = splits * tiles;
  const int64_t token_tiles = div_up(product.n_tokens, int64_t{kTokens});
  CHECK(blocks <= INT32_MAX && token_tiles < 65536);  // grid.x, grid.y
  launch(context.stream,
         {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(token_tiles)),
          .threads = Tile::kThreads,
          .shared_bytes = Tile::kSharedBytes,
          .cluster = static_cast<unsigned>(splits)},
         wide_kernel<Tile>, params);
}

template <WeightFormat kFormat>
void launch_wide_format(const Context& context, const ThinProduct& product, const WidePlan& plan) {
  switch (plan.tokens) {
    case 32:
      return launch_wide_tile<kFormat, 32>(context, product, plan.splits);
    case 64:
      return launch_wide_tile<kFormat, 64>(context, product, plan.splits);
    default:
      return launch_wide_tile<kFormat, 128>(context, product, plan.splits);
  }
}

}  // namespace quire::cuda
