// What becomes of the sums of one tile: those of a block's warps, each over its part of the inputs,
// and the gate and up that come of it; or outputs of down.
#pragma once

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/packed_step.cuh"

namespace quire::cuda {

// Sums of eight tokens each, as a block's warps leave them: [warp][sum][row of tile][token].
template <int kWarps, int kSums>
struct WarpSums {
  float at[kWarps][kSums][kTileRows][8];

  // The warp's own.
  __device__ void store(int index, const TileSum& acc) {
    const int g = lane_of_thread() / 4;
    const int t = lane_of_thread() % 4;
    float(&to)[kTileRows][8] = at[warp_of_thread()][index];
    *reinterpret_cast<float2*>(&to[g][2 * t]) = {acc[0], acc[1]};
    *reinterpret_cast<float2*>(&to[g + 8][2 * t]) = {acc[2], acc[3]};
  }

  // silu(gate) * up of all warps' sums, added in order of the inputs.
  __device__ bf16 inner(int index, int row, int token) const {
    float gate = 0;
    float up = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      gate += at[warp][index][row][token];
      up += at[warp][index][row + kInnerOfTile][token];
    }
    return __float2bfloat16_rn(gated(gate, up));
  }
};

// Outputs g and g + 8 of the tile, of the lane's token `i`, lie side by side: SumOrder::tiles.
// `tile` is the token's row of outputs from the tile's first one on, and the lane's value g.
__device__ __forceinline__ void store_halves(Bf16* tile, const TileSum& acc, int i) {
  *reinterpret_cast<uint32_t*>(tile) = bits_of(__floats2bfloat162_rn(acc[i], acc[i + 2]));
}

}  // namespace quire::cuda
