// Adding up the parts of a token: by groups of the blocks that attended them, or by a kernel behind
// them.
#pragma once

#include "cuda/mla_decode/partial_sums.cuh"

namespace quire::cuda {

// Some vectors of a token's sums.
struct Slice {
  int token;
  TokenParts parts;
  int begin, end;  // `begin` is a multiple of 4
};

// Shared memory of a combination, by one group of threads.
struct CombineScratch {
  float weight[kPartsMax][kHeadTile];
  float4 sum[2][kGroupThreads];
};

// What each part counts, for each head: 2^(its largest score - the largest) / total of all weights.
__device__ inline void weigh_parts(const PartialSums& partial, const Slice& slice, int head_group,
                                   CombineScratch* s) {
  constexpr int kOfLane = kPartsMax / kWarpSize;
  constexpr int kHeads = kHeadTile / kGroupWarps;  // of a warp
  const int n_parts = slice.parts.n_parts;
  const int lane = lane_of_thread();
  const int head = kHeads * (warp_of_thread() % kGroupWarps);
  static_assert(kHeads == 2);
  float4 softmax[kOfLane];  // {largest, total} of both heads
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (kWarpSize * i >= n_parts) break;
    const int part = lane + kWarpSize * i;
    softmax[i] = {-INFINITY, 0, -INFINITY, 0};
    if (part >= n_parts) continue;
    softmax[i] = __ldcg(reinterpret_cast<const float4*>(
        &partial.softmax[partial.index_of(slice.parts, part, head_group) * kHeadTile + head]));
  }
  float2 largest{-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (kWarpSize * i >= n_parts) break;
    largest = {fmaxf(largest.x, softmax[i].x), fmaxf(largest.y, softmax[i].z)};
  }
  largest = {warp_max(largest.x), warp_max(largest.y)};
  float2 total{0, 0};
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (kWarpSize * i >= n_parts) break;
    softmax[i].x = exp2_fast(softmax[i].x - largest.x);
    softmax[i].z = exp2_fast(softmax[i].z - largest.y);
    total.x += softmax[i].x * softmax[i].y;
    total.y += softmax[i].z * softmax[i].w;
  }
  const float2 inverse{reciprocal(warp_sum(total.x)), reciprocal(warp_sum(total.y))};
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int part = lane + kWarpSize * i;
    if (part >= n_parts) break;
    *reinterpret_cast<float2*>(&s->weight[part][head]) = {softmax[i].x * inverse.x,
                                                          softmax[i].z * inverse.y};
  }
}

// out = sum over the parts of a slice, by a group, in an order that depends on their number and on
// the length of the slice. A thread has two vectors, and four parts of each under way at once.
template <KvFormat kFormat>
__device__ inline void combine_slice(const PartialSums& partial, const DecodeOutput& out,
                                     const Slice& slice, int head_group, int group,
                                     CombineScratch* s) {
  constexpr int kAtOnce = 4;
  const int n_parts = slice.parts.n_parts;
  const int thread = static_cast<int>(threadIdx.x % kGroupThreads);
  int columns = 4;
  while (columns < kGroupThreads && 2 * columns < slice.end - slice.begin) columns *= 2;
  const int turns = kGroupThreads / columns;  // parts under way at once, each in its threads
  const int turn = thread / columns;
  const uint64_t policy = partial.policy();
  bool has_weights = false;
#pragma unroll 1
  for (int first = slice.begin; first < slice.end; first += 2 * columns) {
    const int vector = first + thread % columns;
    const bool is_there[2] = {vector < slice.end, vector + columns < slice.end};
    float4 sum[2] = {};
#pragma unroll 1
    for (int begin = turn; begin < n_parts || !has_weights; begin += kAtOnce * turns) {
      float4 part[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = begin + i * turns;
        if (at >= n_parts) break;
        const float4* from =
            &partial.out[partial.index_of(slice.parts, at, head_group) * kSumVectors + vector];
        if (is_there[0]) part[i][0] = load_float4(from, policy);
        if (is_there[1]) part[i][1] = load_float4(from + columns, policy);
      }
      if (!has_weights) {  // while those are on their way
        has_weights = true;
        weigh_parts(partial, slice, head_group, s);
        group_sync(group);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = begin + i * turns;
        if (at >= n_parts) break;
        const float2 weight = *reinterpret_cast<const float2*>(&s->weight[at][2 * (vector % 4)]);
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          if (!is_there[v]) continue;
          sum[v].x += part[i][v].x * weight.x;
          sum[v].y += part[i][v].y * weight.y;
          sum[v].z += part[i][v].z * weight.x;
          sum[v].w += part[i][v].w * weight.y;
        }
      }
    }
    // Turns of a warp are added up by the warp, and then those of the four warps.
#pragma unroll 1
    for (int step = columns; step < kWarpSize; step *= 2) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        sum[v].x += __shfl_xor_sync(kFullWarp, sum[v].x, step);
        sum[v].y += __shfl_xor_sync(kFullWarp, sum[v].y, step);
        sum[v].z += __shfl_xor_sync(kFullWarp, sum[v].z, step);
        sum[v].w += __shfl_xor_sync(kFullWarp, sum[v].w, step);
      }
    }
    const int pitch = max(columns, kWarpSize);
    const int rows = kGroupThreads / pitch;
    if (rows > 1) {
      s->sum[0][thread] = sum[0];
      s->sum[1][thread] = sum[1];
      group_sync(group);
    }
    // The first row has the first vector, the second row the other, the only one both.
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      if (!is_there[v] || thread / pitch != (rows > 1 ? v : 0) || thread % pitch >= columns)
        continue;
      float4 all = sum[v];
      if (rows > 1) all = s->sum[v][thread % pitch];
#pragma unroll 1
      for (int row = 1; row < rows; ++row) {
        const float4 more = s->sum[v][row * pitch + thread % pitch];
        all = {all.x + more.x, all.y + more.y, all.z + more.z, all.w + more.w};
      }
      OutputRows<kFormat>(out, slice.token, head_group, vector + v * columns, {1, 1})
          .store(latent_of_vector(vector + v * columns), all);
    }
    if (rows > 1) group_sync(group);
  }
}

}  // namespace quire::cuda
