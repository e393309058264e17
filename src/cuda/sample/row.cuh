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
inline constexpr int kPowersLog2 = 4;
inline constexpr int kPowers = 1 << kPowersLog2;

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

struct Shared {
  Summary summary;
  Best next[2];                   // turns of the top list
  double sums[kWarps];            // of the segments
  int32_t ties[kWarps];           // of the segments
  Histogram histogram[2];         // of a digit and of the next
  Above merged[kBins / kBlocks];  // the block's bins, of all blocks
  // Of this block alone.
  Best bests[kWarps];
  double warp_sums[kWarps];
  double all_sums[kSegments];
  double powers[kPowers];
  int32_t warp_counts[kWarps];
  uint64_t scan[2 * kWarps];
  Above found_above;
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

// exp((logit - largest) / temperature), from float64 and rounded once.
struct Weights {
  float largest;
  float temperature;
  const double* powers;  // [kPowers] 2^(i / kPowers)

  __device__ float exponent(float logit) const { return __fdiv_rn(logit - largest, temperature); }
  // e^x = 2^(k / 16) e^r with |r| <= ln 2 / 32, where the series to r^6 / 720 is off by less than
  // 2^-50.
  __device__ float of_exponent(float x) const {
    if (!(x > -104.0F)) return 0.0F;  // half of the least float
    constexpr double kLn2 = 0.693147180559945309417232;
    constexpr double kShift = 0x1.8p52;  // leaves the nearest whole number in the low bits
    const double exact = x;
    const double shifted = __fma_rn(exact, kPowers / kLn2, kShift);
    const int k = __double2loint(shifted);
    const double r = __fma_rn(shifted - kShift, -kLn2 / kPowers, exact);
    double sum = __fma_rn(r, 1.0 / 720, 1.0 / 120);
    sum = __fma_rn(r, sum, 1.0 / 24);
    sum = __fma_rn(r, sum, 1.0 / 6);
    sum = __fma_rn(r, sum, 0.5);
    sum = __fma_rn(r, sum, 1.0);
    sum = __fma_rn(r, sum, 1.0) * powers[k & (kPowers - 1)];
    // The rest of the power goes into the exponent: a normal number still.
    return static_cast<float>(__hiloint2double(__double2hiint(sum) + (k >> kPowersLog2) * (1 << 20),
                                               __double2loint(sum)));
  }
};

}  // namespace quire::cuda::sampling
