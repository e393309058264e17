// The sums of a part by the two groups of a block: each group's own, and both as one.
#pragma once

#include "cuda/mla_decode/partial_sums.cuh"

namespace quire::cuda {

// The sums of group 1, in the stage of its last page.
struct LeftSums {
  float4 out[kSumVectors];
  float2 softmax[kHeadTile];  // {largest, total}
};

// A group that is done with a part: totals over all of its tokens, sums in their true size.
__device__ inline void finish_sums(int group, GroupExchange* exchange, Sums* sums) {
  const int lane = lane_of_thread();
  for (int j = 0; j < 2; ++j) {
    for (int step = 4; step < kWarpSize; step *= 2) {
      sums->total[j] += __shfl_xor_sync(kFullWarp, sums->total[j], step);
    }
  }
  if (lane < 4) {
    *reinterpret_cast<float2*>(&exchange->total[warp_of_thread() % kGroupWarps][2 * lane]) = {
        sums->total[0], sums->total[1]};
  }
  group_sync(group);
  for (int j = 0; j < 2; ++j) {
    const int head = 2 * (lane % 4) + j;
    sums->total[j] = (exchange->total[0][head] + exchange->total[1][head]) +
                     (exchange->total[2][head] + exchange->total[3][head]);
  }
}

__device__ inline float4 vector_of(const Sums& sums, int tile, const float (&factor)[2]) {
  const float(&out)[4] = sums.out[tile];
  return {out[0] * factor[0], out[1] * factor[1], out[2] * factor[0], out[3] * factor[1]};
}

__device__ inline void leave_sums(const Sums& sums, int thread, float power, LeftSums* left) {
  const float factor[2] = {power, power};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    left->out[tile * kGroupThreads + thread] = vector_of(sums, tile, factor);
  }
  if (thread < 4) {
    for (int j = 0; j < 2; ++j) {
      left->softmax[2 * thread + j] = {sums.largest[j], sums.total[j]};
    }
  }
}

// sums (times `power`) += the other group's.
__device__ inline void take_sums(const LeftSums& left, int thread, float power, Sums* sums) {
  float mine[2];
  float other[2];
  for (int j = 0; j < 2; ++j) {
    const float2 softmax = left.softmax[2 * (thread % 4) + j];
    const float largest = fmaxf(sums->largest[j], softmax.x);
    const float shrink = exp2_fast(sums->largest[j] - largest);
    other[j] = exp2_fast(softmax.x - largest);
    sums->total[j] = sums->total[j] * shrink + softmax.y * other[j];
    sums->largest[j] = largest;
    mine[j] = shrink * power;
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float4 theirs = left.out[tile * kGroupThreads + thread];
    float(&out)[4] = sums->out[tile];
    out[0] = out[0] * mine[0] + theirs.x * other[0];
    out[1] = out[1] * mine[1] + theirs.y * other[1];
    out[2] = out[2] * mine[0] + theirs.z * other[0];
    out[3] = out[3] * mine[1] + theirs.w * other[1];
  }
}

}  // namespace quire::cuda
