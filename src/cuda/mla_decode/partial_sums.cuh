// What the parts of a token leave for their combination.
#pragma once

#include "cuda/mla_decode/attend_page.cuh"
#include "cuda/mla_decode/split_plan.cuh"

namespace quire::cuda {

inline constexpr int kSumVectors = kTiles * kGroupThreads;  // of 16 bytes, a part

struct PartialSums {
  // [part, head group, tile, thread of group]: as lanes hold it, not normalised.
  float4* out;
  float2* softmax;    // [part, head group, 8] {largest score, total of weights}
  TokenParts* parts;  // [n_tokens]; fixed cut only
  int n_head_groups;
  Cut cut;

#ifdef __CUDACC__
  // Part `i` of a token, for a head group, among all parts of all tokens.
  __device__ int64_t index_of(const TokenParts& token, int i, int head_group) const {
    const int64_t part =
        cut == Cut::fixed ? token.first + i : int64_t{2} * (token.first + i) + (i == 0 ? 1 : 0);
    return part * n_head_groups + head_group;
  }
#endif
};

// Where results go, for both kernels.
struct DecodeOutput {
  bf16* data;         // [n_tokens, n_heads, 512]
  int64_t stride[2];  // elements between tokens, between heads
  int n_heads;

#ifdef __CUDACC__
  // Writes what one thread of a group holds of one tile: latents of rows g and g + 8, two heads.
  template <KvFormat kFormat>
  __device__ void store(int token, int head_group, int vector, const float4& sum,
                        const float2& total) const {
    using Shape = PageShape<kFormat>;
    const int lane = vector % kWarpSize;
    const int warp = vector / kWarpSize % kGroupWarps;
    const int tile = vector / kGroupThreads;
    const int g = lane / 4;
    const int first_head = kHeadTile * head_group + 2 * (lane % 4);
    const int latent = kLatentsOfWarp * warp + 16 * tile;
    for (int j = 0; j < 2; ++j) {
      if (first_head + j >= n_heads) break;
      bf16* to = data + token * stride[0] + (first_head + j) * stride[1] + latent;
      const float inverse = __frcp_rn(j == 0 ? total.x : total.y);
      const bf16x2 pair = __floats2bfloat162_rn((j == 0 ? sum.x : sum.y) * inverse,
                                                (j == 0 ? sum.z : sum.w) * inverse);
      if constexpr (Shape::latent_of(0, 1) == 1) {
        *reinterpret_cast<bf16x2*>(to + Shape::latent_of(g, 0)) = pair;
      } else {
        to[Shape::latent_of(g, 0)] = pair.x;
        to[Shape::latent_of(g, 1)] = pair.y;
      }
    }
  }
#endif
};

}  // namespace quire::cuda
