// Which of a handful of pairs each expert works on, made by a block for itself.
#pragma once

#include <cstdint>

#include "cuda/common/reduce.cuh"
#include "cuda/moe/few_experts.h"

namespace quire::cuda {

// x / by for 0 <= x < 2^20 and by > 0, exactly, in fewer instructions than a division takes.
__device__ __forceinline__ int small_quotient(int x, int by) {
  return __float2int_rz(__fdividef(static_cast<float>(x) + 0.5F, static_cast<float>(by)));
}

// In shared memory. Experts are in the order in which they were first chosen. One that has more
// pairs than a product has columns, because a token chose it twice, is there more than once.
struct FewLists {
  int n_active;
  int expert[kFewPairsMax];
  int n_rows[kFewPairsMax];                   // pairs of each
  uint8_t pair[kFewPairsMax][kFewTokensMax];  // ascending
  float weight[kFewPairsMax];                 // by pair
  uint64_t same[kFewPairsMax];                // by pair, the pairs of its expert: on the way
};

// What a thread reads of the choice: two pairs a lane, in each warp. Not by the read-only path:
// the kernel before may still run.
struct FewChosen {
  int expert[2];
  float weight[2];

  __device__ static FewChosen load(const FewChoice& choice) {
    FewChosen out;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pair = lane_of_thread() + half * kWarpSize;
      const int64_t token = small_quotient(pair, choice.top_k);
      const int64_t slot = pair - token * choice.top_k;
      const bool is_pair = token < choice.n_tokens;
      out.expert[half] =
          is_pair ? __ldcg(choice.experts + token * choice.experts_stride + slot) : -1;
      out.weight[half] =
          is_pair ? __ldcg(choice.weights + token * choice.weights_stride + slot) : 0;
    }
    return out;
  }
};

// By all threads of a block of kFewWarps warps; the lists are there behind a __syncthreads().
__device__ inline void list_few(const FewChosen& chosen, FewLists& lists) {
  constexpr int kOfWarp = kFewPairsMax / kFewWarps;
  const int lane = lane_of_thread();
  const int warp = warp_of_thread();
#pragma unroll
  for (int i = 0; i < kOfWarp; ++i) {
    const int pair = warp * kOfWarp + i;
    const int own =
        __shfl_sync(kFullWarp, pair < kWarpSize ? chosen.expert[0] : chosen.expert[1], pair);
    const uint64_t low = __ballot_sync(kFullWarp, chosen.expert[0] == own);
    const uint64_t high = __ballot_sync(kFullWarp, chosen.expert[1] == own);
    if (lane == 0) lists.same[pair] = low | high << kWarpSize;
  }
  __syncthreads();
  if (warp != 0) return;
  // Pairs of an expert before this one, and whether it opens a list.
  uint64_t same[2];
  int place[2];
  uint64_t first = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pair = lane + half * kWarpSize;
    lists.weight[pair] = chosen.weight[half];
    same[half] = lists.same[pair];
    place[half] = __popcll(same[half] & ((uint64_t{1} << pair) - 1));
    const bool opens = chosen.expert[half] >= 0 && place[half] % kFewTokensMax == 0;
    first |= static_cast<uint64_t>(__ballot_sync(kFullWarp, opens)) << (half * kWarpSize);
  }
  if (lane == 0) lists.n_active = __popcll(first);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (chosen.expert[half] < 0) continue;
    const int pair = lane + half * kWarpSize;
    // The pair that opened this one's list.
    const int opened = place[half] / kFewTokensMax * kFewTokensMax;
    uint64_t left = same[half];
    for (int i = 0; i < opened; ++i) left &= left - 1;
    const int opener = __ffsll(static_cast<long long>(left)) - 1;
    const int active = __popcll(first & ((uint64_t{1} << opener) - 1));
    lists.pair[active][place[half] - opened] = static_cast<uint8_t>(pair);
    if (pair != opener) continue;
    lists.expert[active] = chosen.expert[half];
    lists.n_rows[active] = min(__popcll(left), kFewTokensMax);
  }
}

}  // namespace quire::cuda
