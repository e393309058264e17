// A row of logits as the sampler's blocks see it: a cluster of them shares it, each warp has a
// segment of its block's share.
//
// Shares and the order of every sum follow from the vocabulary alone.
#pragma once

#include "cuda/common/reduce.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/sample/histogram.cuh"
#include "ops/sample.h"

namespace quire::cuda::sampling {

inline constexpr int kThreads = kHistogramThreads;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kBlocks = 8;  // of a row
inline constexpr int kSegments = kBlocks * kWarps;
inline constexpr int kKeysMax = 1024;

struct Params {
  ops::SampledRow* out;    // [n_rows]
  float* logits;           // [n_rows, vocab]; steps 2 and 3 are done in place
  int64_t logits_stride;   // elements between rows
  const SamplerRow* rows;  // [n_rows]
  const int32_t* words;    // what the rows' slices are of
  int32_t* recent;         // [n_recent, recent_stride] tokens of the last steps
  int64_t recent_stride;
  int64_t n_recent;
  const uint64_t* step;  // [1]
  uint32_t* counts;      // [n_rows, vocab] bit 31: in the prompt; the rest: how often generated
  int32_t vocab;
  bool is_aligned;  // rows of logits begin at 16 bytes
};

// What a block found in its share.
struct Summary {
  Best best;
  float largest;  // of the exponents below; best.value, or -inf
  double sum;     // of exp(logit - largest)
  int32_t is_finite;
};

// The bin of a digit that the search goes on in.
struct Found {
  int32_t bin;  // -1: none of the block's
  uint32_t count;
  Above above;
};

struct Shared {
  Summary summary;
  Best next[2];             // turns of the top list
  double sums[kWarps];      // of the segments
  int32_t ties[kWarps];     // of the segments
  Histogram histogram[2];   // of a digit and of the next
  Found found_bin[2];       // the same
  Above bins_sum[2];        // of the block's bins: the same
  uint32_t keys[kKeysMax];  // of the share, those that begin with the first digit
  int32_t n_keys;           // found; more than kKeysMax are not kept
  // Of this block alone.
  Summary summaries[kBlocks];  // of the row's blocks
  Best bests[kWarps];
  double warp_sums[kWarps];
  double all_sums[kSegments];
  int32_t warp_counts[kWarps];
  uint64_t scan[2 * kWarps];
  int32_t found;
};

struct Range {
  int32_t begin, end;
};

// Part `part` of [0, n) in `parts`; all but the last end at multiples of 4.
__device__ inline Range part_of(Range whole, int part, int parts) {
  const int32_t length = ((whole.end - whole.begin + parts - 1) / parts + 3) / 4 * 4;
  const int32_t begin = min(whole.begin + part * length, whole.end);
  return {begin, min(begin + length, whole.end)};
}

// Where a row stands: its logits, and the block's share of them.
struct Row {
  const Params& p;
  const SamplerRow& settings;
  float* logits;
  Range share;
  Shared& shared;

  __device__ Range segment() const { return part_of(share, warp_of_thread(), kWarps); }
  __device__ Shared& of_block(int block) const {
    return *in_block(&shared, static_cast<uint32_t>(block));
  }
};

__device__ inline void cluster_sync() {
  arrive_at_cluster();
  wait_for_cluster();
}

// body(first token, values, count) on four tokens at a time, by `workers` threads; several loads
// are under way.
template <class Body>
__device__ inline void each_four(const Row& row, Range range, int worker, int workers,
                                 const Body& body) {
  constexpr int kLoads = 4;
  const int32_t turn = 4 * workers * kLoads;
  int32_t first = range.begin;
  for (; row.p.is_aligned && first + turn <= range.end; first += turn) {
    float4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      v[i] = *reinterpret_cast<const float4*>(row.logits + first + 4 * (worker + i * workers));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float values[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      body(first + 4 * (worker + i * workers), values, 4);
    }
  }
  for (int32_t at = first + 4 * worker; at < range.end; at += 4 * workers) {
    float values[4];
    for (int j = 0; j < 4; ++j) values[j] = at + j < range.end ? row.logits[at + j] : -INFINITY;
    body(at, values, min(range.end - at, 4));
  }
}

template <class Body>
__device__ inline void each_four_of_share(const Row& row, const Body& body) {
  each_four(row, row.share, static_cast<int>(threadIdx.x), kThreads, body);
}

// exp((logit - largest) / temperature), in float32: off by a few units in the last place.
struct Weights {
  float largest;
  float inverse_temperature;

  __device__ float exponent(float logit) const { return (logit - largest) * inverse_temperature; }
  // A logit that no smaller `exponent` reaches, or no larger one: cheap to compare with, and a
  // little too far (`side` is -1 or 1) by more than all roundings.
  __device__ float logit_bound(float exponent, float side) const {
    if (isinf(exponent)) return exponent;
    const float distance = exponent / inverse_temperature;
    return largest + distance + side * 0x1p-20F * (fabsf(largest) + fabsf(distance));
  }
  __device__ float of_exponent(float x) const { return expf(x); }
};

}  // namespace quire::cuda::sampling
