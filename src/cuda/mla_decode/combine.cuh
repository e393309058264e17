// Adding up the parts of a token: by the blocks that attended them, or by a kernel behind them.
#pragma once

#include "cuda/mla_decode/partial_sums.cuh"

namespace quire::cuda {

inline constexpr int kCombineThreads = 256;

// What one thread has of two heads: sums of two latents each, and their softmax.
struct CombinedSums {
  float4 out{0, 0, 0, 0};                      // of heads 0, 1, 0, 1
  float4 softmax{-INFINITY, 0, -INFINITY, 0};  // {largest, total} of heads 0, 1

  // `count` of these are added at once, in order.
  template <int kCount>
  __device__ void add(const float4 (&outs)[kCount], const float4 (&softmaxes)[kCount], int count) {
    float2 largest{softmax.x, softmax.z};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) break;
      largest.x = fmaxf(largest.x, softmaxes[i].x);
      largest.y = fmaxf(largest.y, softmaxes[i].z);
    }
    // Nothing yet: -inf - -inf is NaN.
    const float2 shrink{softmax.y == 0 ? 0 : exp2_fast(softmax.x - largest.x),
                        softmax.w == 0 ? 0 : exp2_fast(softmax.z - largest.y)};
    out = {out.x * shrink.x, out.y * shrink.y, out.z * shrink.x, out.w * shrink.y};
    softmax = {largest.x, softmax.y * shrink.x, largest.y, softmax.w * shrink.y};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) break;
      const float2 weight{exp2_fast(softmaxes[i].x - largest.x),
                          exp2_fast(softmaxes[i].z - largest.y)};
      out.x += outs[i].x * weight.x;
      out.y += outs[i].y * weight.y;
      out.z += outs[i].z * weight.x;
      out.w += outs[i].w * weight.y;
      softmax.y += softmaxes[i].y * weight.x;
      softmax.w += softmaxes[i].w * weight.y;
    }
  }
};

// Shared memory of a combination.
struct CombineScratch {
  float4 out[kCombineThreads];
  float4 softmax[kCombineThreads];
};

__device__ inline void combine_sync() {
  asm volatile("bar.sync 3, %0;" ::"n"(kCombineThreads) : "memory");
}

// Vectors [begin, end) of a token's sums, by kCombineThreads threads: out = sum over its parts, in
// an order that depends on their number and on end - begin. `begin` is a multiple of 4.
template <KvFormat kFormat>
__device__ inline void combine_vectors(const PartialSums& partial, const DecodeOutput& out,
                                       int token, const TokenParts& parts, int head_group,
                                       int begin, int end, CombineScratch* s) {
  constexpr int kAtOnce = 4;
  const int thread = static_cast<int>(threadIdx.x);
  int columns = 8;
  while (columns < kCombineThreads && columns < end - begin) columns *= 2;
  const int turns = kCombineThreads / columns;  // parts under way at once, each in its threads
  const int turn = thread / columns;
#pragma unroll 1
  for (int first = begin; first < end; first += columns) {
    const int vector = first + thread % columns;
    CombinedSums sums;
#pragma unroll 1
    for (int part = turn; part < parts.n_parts && vector < end; part += kAtOnce * turns) {
      const int count = min((parts.n_parts - part - 1) / turns + 1, kAtOnce);
      float4 outs[kAtOnce];
      float4 softmaxes[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i >= count) break;
        const int64_t index = partial.index_of(parts, part + i * turns, head_group);
        outs[i] = __ldcg(&partial.out[index * kSumVectors + vector]);
        softmaxes[i] = __ldcg(reinterpret_cast<const float4*>(
            &partial.softmax[index * kHeadTile + 2 * (vector % 4)]));
      }
      sums.add(outs, softmaxes, count);
    }
    // Turns that had a part are added up as a tree.
#pragma unroll 1
    for (int half = turns / 2; half > 0; half /= 2) {
      s->out[thread] = sums.out;
      s->softmax[thread] = sums.softmax;
      combine_sync();
      if (turn < half && turn + half < parts.n_parts) {
        const float4 outs[1] = {s->out[thread + half * columns]};
        const float4 softmaxes[1] = {s->softmax[thread + half * columns]};
        sums.add(outs, softmaxes, 1);
      }
      combine_sync();
    }
    if (turn == 0 && vector < end) {
      out.store<kFormat>(token, head_group, vector, sums.out, {sums.softmax.y, sums.softmax.w});
    }
  }
}

}  // namespace quire::cuda
