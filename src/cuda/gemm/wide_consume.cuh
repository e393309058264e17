// The warpgroups of a wide block that multiply: chunks of the ring become sums in registers.
#pragma once

#include "cuda/gemm/weight_fragments.cuh"
#include "cuda/gemm/wide_finish.cuh"
#include "cuda/gemm/wide_tile.cuh"

namespace quire::cuda {

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

}  // namespace quire::cuda
