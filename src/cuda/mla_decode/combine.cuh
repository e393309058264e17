// Adding up the parts of a token: by the blocks that attended them, or by a kernel behind them.
#pragma once

#include "cuda/mla_decode/partial_sums.cuh"

namespace quire::cuda {

inline constexpr int kCombineThreads = kHeadTile * kWarpSize;

// Shared memory of a combination.
struct CombineScratch {
  float4 sums[kCombineThreads];
  float totals[kHeadTile];
  float weights[];  // [part, 8]

  static constexpr int64_t bytes(int n_parts) {
    return static_cast<int64_t>(sizeof(CombineScratch)) + int64_t{n_parts} * kHeadTile * 4;
  }
};

__device__ inline void combine_sync() {
  asm volatile("bar.sync 3, %0;" ::"n"(kCombineThreads) : "memory");
}

// What every part counts, and the total of all weights: a warp a head, a lane every 32nd part.
__device__ inline void weigh_parts(const PartialSums& partial, const TokenParts& parts,
                                   int head_group, CombineScratch* s) {
  constexpr int kAtOnce = 4;
  const int lane = lane_of_thread();
  const int head = warp_of_thread();
  const auto softmax = [&](int part) {
    return __ldcg(&partial.softmax[partial.index_of(parts, part, head_group) * kHeadTile + head]);
  };
  float2 first[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int part = lane + i * kWarpSize;
    first[i] = part < parts.n_parts ? softmax(part) : float2{-INFINITY, 0};
  }
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) largest = fmaxf(largest, first[i].x);
  for (int part = lane + kAtOnce * kWarpSize; part < parts.n_parts; part += kWarpSize) {
    largest = fmaxf(largest, softmax(part).x);
  }
  largest = warp_max(largest);
  float total = 0;
  const auto weigh = [&](int part, const float2& of_part) {
    const float weight = exp2_fast(of_part.x - largest);
    s->weights[part * kHeadTile + head] = weight;
    total += of_part.y * weight;
  };
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int part = lane + i * kWarpSize;
    if (part < parts.n_parts) weigh(part, first[i]);
  }
  for (int part = lane + kAtOnce * kWarpSize; part < parts.n_parts; part += kWarpSize) {
    weigh(part, softmax(part));
  }
  total = warp_sum(total);
  if (lane == 0) s->totals[head] = total;
}

// Vectors [begin, end) of a token's sums, by kCombineThreads threads: out = sum over its parts, in
// an order that depends on their number alone. No columns of threads: the parts in turn.
template <KvFormat kFormat>
__device__ inline void combine_vectors(const PartialSums& partial, const DecodeOutput& out,
                                       int token, const TokenParts& parts, int head_group,
                                       int begin, int end, CombineScratch* s) {
  constexpr int kAtOnce = 4;
  const int thread = static_cast<int>(threadIdx.x);
  weigh_parts(partial, parts, head_group, s);
  combine_sync();
  int columns = 8;
  while (columns < kCombineThreads && columns < end - begin) columns *= 2;
  const int turns = kCombineThreads / columns;  // parts under way at once
  const int head = 2 * (thread % 4);            // begin and columns are multiples of 4
  for (int first = begin; first < end; first += columns) {
    const int vector = first + thread % columns;
    float4 sum{0, 0, 0, 0};
    for (int part = thread / columns; part < parts.n_parts; part += kAtOnce * turns) {
      float4 of_part[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        of_part[i] = {0, 0, 0, 0};
        if (part + i * turns < parts.n_parts && vector < end) {
          of_part[i] = __ldcg(
              &partial.out[partial.index_of(parts, part + i * turns, head_group) * kSumVectors +
                           vector]);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (part + i * turns >= parts.n_parts) break;
        const float2 weight =
            *reinterpret_cast<const float2*>(&s->weights[(part + i * turns) * kHeadTile + head]);
        sum.x += of_part[i].x * weight.x;
        sum.y += of_part[i].y * weight.y;
        sum.z += of_part[i].z * weight.x;
        sum.w += of_part[i].w * weight.y;
      }
    }
    if (turns > 1) {
      s->sums[thread] = sum;
      combine_sync();
      for (int turn = 1; thread < columns && turn < turns; ++turn) {
        const float4 other = s->sums[turn * columns + thread];
        sum.x += other.x;
        sum.y += other.y;
        sum.z += other.z;
        sum.w += other.w;
      }
    }
    if (thread < columns && vector < end) {
      out.store<kFormat>(token, head_group, vector, sum, {s->totals[head], s->totals[head + 1]});
    }
  }
}

}  // namespace quire::cuda
