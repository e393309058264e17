// A step of all four tiles of a group of INT4 that lies in shared memory, times eight tokens.
#pragma once

#include "cuda/moe/expert_stream.cuh"

namespace quire::cuda {

inline constexpr WeightFormat kInt4 = WeightFormat::int4_group;

// -24 in registers that stay: the compiler would make a constant anew for each product.
__device__ __forceinline__ MmaA held_minus_24() {
  MmaA out;
  asm volatile("mov.b32 %0, %1;" : "=r"(out.a0) : "n"(kMinus24));
  asm volatile("mov.b32 %0, %1;" : "=r"(out.a1) : "n"(kMinus24));
  asm volatile("mov.b32 %0, %1;" : "=r"(out.a2) : "n"(kMinus24));
  asm volatile("mov.b32 %0, %1;" : "=r"(out.a3) : "n"(kMinus24));
  return out;
}

// A half of a step of INT4 is two pieces of each tile.
template <int kHalf>
__device__ __forceinline__ void multiply_half(const uint4 (&values)[kGroupTiles],
                                              const uint4 (&scales)[kGroupTiles],
                                              const StepInput<kInt4>& input, const MmaA& minus_24,
                                              TileSum (&acc)[kGroupTiles]) {
  using Step = PackedStep<kInt4>;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4& x = input.x[2 * kHalf + i];
    TileSum bias = {0, 0, 0, 0};
    mma_bf16(bias, minus_24, x.x, x.y);
    mma_bf16(bias, minus_24, x.z, x.w);
#pragma unroll
    for (int tile = 0; tile < kGroupTiles; ++tile) {
      const uint4& v = values[tile];
      TileSum part;
      mma_bf16(part, Step::biased(i == 0 ? v.x : v.z), x.x, x.y, bias);
      mma_bf16(part, Step::biased(i == 0 ? v.y : v.w), x.z, x.w);
      const float2 scale = Step::scales_of<2 * kHalf>(scales[tile], i);
      fold(acc[tile], part, scale.x, scale.y);
    }
  }
}

// acc += a chunk of a step of all tiles times eight tokens: bit by bit what multiply_step gives,
// with less of the weights in registers at a time.
__device__ __forceinline__ void multiply_chunk(uint32_t chunk, const StepInput<kInt4>& input,
                                               const MmaA& minus_24, TileSum (&acc)[kGroupTiles]) {
  constexpr int kBytes = kStepBytes<kInt4>;
  const auto lane = static_cast<uint32_t>(lane_of_thread());
  uint4 values[kGroupTiles];
  uint4 scales[kGroupTiles];
#pragma unroll
  for (int tile = 0; tile < kGroupTiles; ++tile) {
    values[tile] = load_shared_128(chunk + tile * kBytes + lane * 16);
    scales[tile] = load_shared_128(chunk + tile * kBytes + kStepValueBytes + lane / 4 * 16);
  }
  multiply_half<0>(values, scales, input, minus_24, acc);
#pragma unroll
  for (int tile = 0; tile < kGroupTiles; ++tile) {
    values[tile] = load_shared_128(chunk + tile * kBytes + 512 + lane * 16);
  }
  multiply_half<1>(values, scales, input, minus_24, acc);
}

}  // namespace quire::cuda
