// What the parts of a token leave for their combination.
#pragma once

#include "cuda/mla_decode/attend_page.cuh"
#include "cuda/mla_decode/split_plan.cuh"
#include "cuda/ptx/cache_policy.cuh"

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
  // Of `out`. An even cut adds the parts up in the same launch, in which pages many times the size
  // of the second-level cache go through it; of a fixed cut there can be more than it holds.
  __device__ uint64_t policy() const { return cut == Cut::even ? kEvictLast : kEvictNormal; }
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
};

#ifdef __CUDACC__

// Within float32's last place: the quotient is rounded to bfloat16.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What one thread of a group writes: of two heads the latents of rows g and g + 8 of a tile.
template <KvFormat kFormat>
struct OutputRows {
  bf16* head[2];     // the first latent of row g, or null
  float inverse[2];  // of the totals of weights

  // `vector`: any of those that the thread has, of a part's sums; its lane is vector % 32.
  __device__ OutputRows(const DecodeOutput& out, int token, int head_group, int vector,
                        const float2& total)
      : inverse{reciprocal(total.x), reciprocal(total.y)} {
    const int first = kHeadTile * head_group + 2 * (vector % 4);
    head[0] = out.data + token * out.stride[0] + first * out.stride[1] +
              PageShape<kFormat>::latent_of(vector % kWarpSize / 4, 0);
    head[1] = first + 1 < out.n_heads ? head[0] + out.stride[1] : nullptr;
    if (first >= out.n_heads) head[0] = nullptr;
  }
  // `latent`: the first of the tile.
  __device__ void store(int latent, const float4& sum) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (head[j] == nullptr) continue;
      const bf16x2 pair = __floats2bfloat162_rn((j == 0 ? sum.x : sum.y) * inverse[j],
                                                (j == 0 ? sum.z : sum.w) * inverse[j]);
      bf16* to = head[j] + latent;
      if constexpr (PageShape<kFormat>::latent_of(0, 1) == 1) {
        *reinterpret_cast<bf16x2*>(to) = pair;
      } else {
        to[0] = pair.x;
        to[PageShape<kFormat>::latent_of(0, 1)] = pair.y;
      }
    }
  }
};

// The first latent of the tile that a vector of a part's sums is of.
__device__ inline int latent_of_vector(int vector) {
  return kLatentsOfWarp * (vector / kWarpSize % kGroupWarps) + 16 * (vector / kGroupThreads);
}

#endif

}  // namespace quire::cuda
