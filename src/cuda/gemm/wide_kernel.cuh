// The kernel of wide products (gemm/wide.h). Included by the file that instantiates each format.
#pragma once

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/tensor_map.h"
#include "cuda/gemm/weight_fragments.cuh"
#include "cuda/gemm/wide_finish.cuh"
#include "cuda/gemm/wide_tile.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace quire::cuda {

// Where a lane of the copying warp finds scales.
template <class Tile>
struct WideScaleSource {
  // INT4: of every 32nd row, in pairs of groups; rows past the end take the last one's.
  static constexpr int kLaneRows = kWideRows / kWarpSize;
  const bf16* row[kLaneRows];
  int32_t n_groups;
  int group;
  // FP8: one for each chunk of the weights; of every 32nd token, or null.
  static constexpr int kLaneTokens = Tile::kTokens / kWarpSize;
  const float* weights;
  const float* token[kLaneTokens];
  bool has_tokens;

  __device__ WideScaleSource(const ThinProduct& p, const WidePlace& place) {
    const ThinSide& side = p.sides[place.side];
    const int lane = lane_of_thread();
    if constexpr (Tile::kFormat == WeightFormat::int4_group) {
      group = p.group;
      n_groups = static_cast<int32_t>(p.n_in / p.group);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        const int64_t at = min(place.first_row + lane + i * kWarpSize, side.n_out - 1);
        row[i] = static_cast<const bf16*>(side.weight.scales) + at * side.weight.scale_stride;
      }
    } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      weights = static_cast<const float*>(side.weight.scales) +
                place.first_row / kFp8Block * side.weight.scale_stride;
      has_tokens = p.x_scale != nullptr;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        const int64_t at = min(place.first_token + lane + i * kWarpSize, p.n_tokens - 1);
        token[i] = p.x_scale + at * p.x_scale_stride;
      }
    }
  }
  __device__ void copy_of_weights(uint32_t to, int32_t chunk) const {
    const int lane = lane_of_thread();
    if constexpr (Tile::kFormat == WeightFormat::int4_group) {
      const int32_t first = group == 32 ? 4 * chunk : chunk / 2 * 2;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        const uint32_t at = to + 8 * (lane + i * kWarpSize);
        copy_async_4(at, row[i] + min(first, n_groups - 2), first < n_groups ? 4 : 0);
        if (group == 32) {
          copy_async_4(at + 4, row[i] + min(first + 2, n_groups - 2), first + 2 < n_groups ? 4 : 0);
        }
      }
    } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      if (lane == 0) copy_async_4(to + 4 * Tile::kTokens, weights + chunk);
    }
  }
  __device__ void copy_of_tokens(uint32_t to, int32_t chunk) const {
    if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      if (!has_tokens) return;
#pragma unroll
      for (int i = 0; i < kLaneTokens; ++i) {
        copy_async_4(to + 4 * (lane_of_thread() + i * kWarpSize), token[i] + chunk);
      }
    }
  }
};

// Copies chunks to the ring, by one warp: tiles by its first lane, scales by all lanes.
template <class Tile>
struct WideProducer {
  const WideParams& params;
  const WidePlace& place;
  const WideShared<Tile>& shared;
  const WideScaleSource<Tile> scales;

  __device__ void copy_weights(int stage, int32_t chunk) const {
    if (lane_of_thread() == 0) {
      Barrier* full = shared.full(stage);
      barrier_expect_bytes(full, Tile::kStageBytes);
      // Bytes, or values of bfloat16: an element of the map.
      constexpr int kElements = Tile::kRowBytes / (Tile::kFormat == WeightFormat::bf16 ? 2 : 1);
      tensor_copy(shared.weights(stage), params.weights[place.side],
                  {chunk * kElements, static_cast<int>(place.first_row), 0}, full);
    }
    scales.copy_of_weights(shared_address(shared.scales(stage)), chunk);
  }
  __device__ void copy_x(int stage, int32_t chunk) const {
    Barrier* full = shared.full(stage);
    if (lane_of_thread() == 0) {
#pragma unroll
      for (int panel = 0; panel < Tile::kXPanels; ++panel) {
        tensor_copy(
            shared.x(stage) + panel * Tile::kXPanelBytes, params.x,
            {chunk * Tile::kInputs + panel * kPanelColumns, 0, static_cast<int>(place.first_token)},
            full);
      }
    }
    scales.copy_of_tokens(shared_address(shared.scales(stage)), chunk);
    if constexpr (Tile::kScaleBytes > 0) barrier_arrive_when_copied(full);
  }
};

template <class Tile>
__device__ void produce(const WideParams& params, const WidePlace& place,
                        const WideShared<Tile>& shared) {
  const WideProducer<Tile> producer{params, place, shared, {params.product, place}};
  const int n = place.chunk_end - place.chunk_begin;
  const int n_first = min(n, Tile::kStages);
  for (int i = 0; i < n_first; ++i) producer.copy_weights(i, place.chunk_begin + i);
  wait_for_earlier_kernels();
  for (int i = 0; i < n_first; ++i) producer.copy_x(i, place.chunk_begin + i);
  WideTurn<Tile> turn;
  for (int i = Tile::kStages; i < n; ++i) {
    barrier_wait(shared.empty(turn.stage), turn.parity);
    producer.copy_weights(turn.stage, place.chunk_begin + i);
    producer.copy_x(turn.stage, place.chunk_begin + i);
    turn.advance();
  }
}

// A chunk of the ring as a warp of the consumers reads it: addresses in shared memory.
template <class Tile>
struct WideChunk {
  const WideShared<Tile>& shared;
  int stage;
  uint32_t weights;    // of the lane, or as an operand of the warpgroup
  uint32_t x_operand;  // low word of the first

  // Waits until it is there.
  __device__ WideChunk(const WideShared<Tile>& ring, const WideTurn<Tile>& turn)
      : shared(ring), stage(turn.stage) {
    const uint32_t at = shared_address(shared.base) + stage * Tile::kStageBytes;
    const auto warp = static_cast<uint32_t>(warp_of_thread());
    if constexpr (Tile::kFormat == WeightFormat::bf16) {
      weights = (at + warp / 4 * 64 * Tile::kRowBytes) >> 4 | kOperandLow;
    } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
      weights = e4m3_lane_address(at + 16 * warp * Tile::kRowBytes);
    } else {
      weights = int4_lane_address(at + 16 * warp * Tile::kRowBytes);
    }
    x_operand = (at + Tile::kWeightBytes) >> 4 | kOperandLow;
    barrier_wait(shared.full(stage), turn.parity);
  }
  __device__ void release() const {
    __syncwarp();
    if (lane_of_thread() == 0) barrier_arrive(shared.empty(stage));
  }
  __device__ uint32_t scales() const {
    return shared_address(shared.base) + Tile::kStages * Tile::kStageBytes +
           stage * Tile::kScaleBytes;
  }
  // Of 16 inputs: 64 outputs, and the tokens.
  __device__ uint64_t weight_step(int step) const { return operand(weights + 2 * step); }
  __device__ uint64_t x_step(int step) const {
    return operand(x_operand + step / 4 * (Tile::kXPanelBytes >> 4) + step % 4 * 2);
  }

 private:
  // What operand_of_rows (ptx/wgmma.cuh) makes of an address, in two words.
  static constexpr uint32_t kOperandLow = 1U << 16;
  static constexpr uint64_t kOperandHigh = uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
  __device__ static uint64_t operand(uint32_t low) { return kOperandHigh | low; }
};

// Two steps of 16 inputs: converted together, multiplied together.
struct WidePairOfSteps {
  MmaA step[2];
};

template <class Tile>
__device__ void convert(const WideChunk<Tile>& chunk, int pair, WidePairOfSteps& to) {
  if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
    to.step[0] = e4m3_fragment(chunk.weights, 2 * pair);
    to.step[1] = e4m3_fragment(chunk.weights, 2 * pair + 1);
  } else {
    const Int4Group stored = int4_group(chunk.weights, pair);
    to.step[0] = int4_fragment(stored, 0);
    to.step[1] = int4_fragment(stored, 1);
  }
}

// Starts part = or += the products of two steps, and leaves them running.
template <class Tile>
__device__ void start_products(const WideChunk<Tile>& chunk, const WidePairOfSteps& weights,
                               int pair, Sum sum, float (&part)[Tile::kValues]) {
  wgmma_hold(part);
  wgmma_fence();
  wgmma_of_rows(part, weights.step[0], chunk.x_step(2 * pair), sum);
  wgmma_of_rows(part, weights.step[1], chunk.x_step(2 * pair + 1), Sum::goes_on);
  wgmma_commit();
}

template <class Tile>
__device__ void finish_products(float (&part)[Tile::kValues]) {
  wgmma_wait<0>();
  wgmma_hold(part);
}

// BF16: the tensor cores read the weights where they lie.
template <class Tile>
__device__ void consume_bf16(const WideShared<Tile>& shared, int n, float (&acc)[Tile::kValues]) {
  static_assert(Tile::kTokens == 64);
  WideTurn<Tile> turn;
  for (int i = 0; i < n; ++i) {
    const WideChunk<Tile> chunk(shared, turn);
    turn.advance();
    wgmma_hold(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      wgmma_m64n64k16(acc, chunk.weight_step(step), chunk.x_step(step), Sum::goes_on);
    }
    wgmma_commit();
    finish_products<Tile>(acc);
    chunk.release();
  }
}

// acc += scales * part. FP8: one scale of the weights for the chunk, and one of each token.
template <class Tile>
__device__ void add_scaled(uint32_t scales, bool has_tokens, const float (&part)[Tile::kValues],
                           float (&acc)[Tile::kValues]) {
  const float scale = __uint_as_float(load_shared_64(scales + 4 * Tile::kTokens).x);
  const uint32_t tokens_at = scales + 8 * (lane_of_thread() % 4);
#pragma unroll
  for (int j = 0; j < Tile::kTokens / 8; ++j) {
    float2 both{scale, scale};
    if (has_tokens) {
      const uint2 tokens = load_shared_64(tokens_at + 32 * j);
      both = {scale * __uint_as_float(tokens.x), scale * __uint_as_float(tokens.y)};
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[4 * j + i] = fmaf(part[4 * j + i], i % 2 == 0 ? both.x : both.y, acc[4 * j + i]);
    }
  }
}

// While two steps are multiplied the next two are converted, those of the next chunk too.
template <class Tile>
__device__ void consume_fp8(const ThinProduct& p, const WideShared<Tile>& shared, int n,
                            float (&acc)[Tile::kValues]) {
  constexpr int kPairs = Tile::kSteps / 2;
  static_assert(kPairs % 2 == 0);
  const bool has_token_scales = p.x_scale != nullptr;
  WidePairOfSteps weights[2];
  WideTurn<Tile> turn;
  if (n > 0) convert(WideChunk<Tile>(shared, turn), 0, weights[0]);
  for (int i = 0; i < n; ++i) {
    const WideChunk<Tile> chunk(shared, turn);
    turn.advance();
    float part[Tile::kValues];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      start_products(chunk, weights[pair % 2], pair, pair == 0 ? Sum::starts : Sum::goes_on, part);
      if (pair > 0) wgmma_wait<1>();  // the products before are done with their weights
      if (pair + 1 < kPairs) convert(chunk, pair + 1, weights[(pair + 1) % 2]);
    }
    if (i + 1 < n) convert(WideChunk<Tile>(shared, turn), 0, weights[0]);
    finish_products<Tile>(part);
    add_scaled<Tile>(chunk.scales(), has_token_scales, part, acc);
    chunk.release();
  }
}

// The scales of a row's four groups of 32, in pairs.
__device__ inline uint2 int4_scales(uint32_t scales, int row, int group, bool is_odd) {
  const uint2 pairs = load_shared_64(scales + 8 * static_cast<uint32_t>(row));
  if (group == 32) return pairs;
  // Of groups of 128 there are this one and its neighbour.
  const uint32_t both = __byte_perm(pairs.x, 0, is_odd ? 0x3232 : 0x1010);
  return {both, both};
}

// INT4: a scale for each two steps of a row.
template <class Tile>
__device__ void consume_int4(const ThinProduct& p, const WidePlace& place,
                             const WideShared<Tile>& shared, float (&acc)[Tile::kValues]) {
  constexpr int kPairs = Tile::kSteps / 2;
  const int n = place.chunk_end - place.chunk_begin;
  const int row = 16 * warp_of_thread() + lane_of_thread() / 4;
  WidePairOfSteps weights[2];
  WideTurn<Tile> turn;
  if (n > 0) convert(WideChunk<Tile>(shared, turn), 0, weights[0]);
  for (int i = 0; i < n; ++i) {
    const WideChunk<Tile> chunk(shared, turn);
    turn.advance();
    const bool is_odd = (place.chunk_begin + i) % 2 != 0;
    const uint2 low = int4_scales(chunk.scales(), row, p.group, is_odd);
    const uint2 high = int4_scales(chunk.scales(), row + 8, p.group, is_odd);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      float part[Tile::kValues];
      start_products(chunk, weights[pair % 2], pair, Sum::starts, part);
      if (pair + 1 < kPairs) {
        convert(chunk, pair + 1, weights[(pair + 1) % 2]);
      } else if (i + 1 < n) {
        convert(WideChunk<Tile>(shared, turn), 0, weights[0]);
      }
      const auto scale_of = [&](const uint2& pairs) {
        const uint32_t two = pair < 2 ? pairs.x : pairs.y;
        return __uint_as_float(pair % 2 == 0 ? two << 16 : two & 0xffff0000U);
      };
      const float scales[2] = {scale_of(low), scale_of(high)};
      finish_products<Tile>(part);
#pragma unroll
      for (int v = 0; v < Tile::kValues; ++v) acc[v] = fmaf(part[v], scales[v / 2 % 2], acc[v]);
    }
    chunk.release();
  }
}

template <class Tile>
__device__ void consume(const ThinProduct& p, const WidePlace& place,
                        const WideShared<Tile>& shared, float (&acc)[Tile::kValues]) {
  const int n = place.chunk_end - place.chunk_begin;
  if constexpr (Tile::kFormat == WeightFormat::bf16) {
    consume_bf16<Tile>(shared, n, acc);
  } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
    consume_fp8<Tile>(p, shared, n, acc);
  } else {
    consume_int4<Tile>(p, place, shared, acc);
  }
}

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
  CUDA_MUST(cudaFuncSetAttribute(wide_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 Tile::kSharedBytes));
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
