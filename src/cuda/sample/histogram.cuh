// Histogram: how many weights there are in each bin of their bits, and their sum, by the atomics of
// a block; and the search for a bin from the highest down.
//
// Weights lie in (0, 1]. Sums are in units of 2^-45, kept as limbs of 16 bits in counters of 32:
// whole numbers, so that the order of the atomics does not matter. One bin of a digit is all keys
// that agree in it and in the digits above.
#pragma once

#include "cuda/common/reduce.cuh"

namespace quire::cuda::sampling {

inline constexpr int kHistogramThreads = 512;
inline constexpr int kBins = 2048;
inline constexpr int kBinsOfThread = kBins / kHistogramThreads;
inline constexpr int kDigits = 3;
// A block's weights, at most: 2^16 limbs of 16 bits fit in a counter.
inline constexpr int64_t kHistogramTokensMax = 65536;

// The bits of 1.0F are 30; a digit is [shift, the shift above).
__device__ inline int digit_shift(int digit) { return digit == 0 ? 19 : digit == 1 ? 8 : 0; }

__device__ inline uint32_t with_digit(uint32_t prefix, int digit, uint32_t bin) {
  return prefix | bin << digit_shift(digit);
}

__device__ inline uint64_t units_of(float weight) {
  return __float2ull_rn(weight * 0x1p45F);  // the product is exact
}

// What lies above a weight, or in a bin.
struct Above {
  uint32_t count;
  uint64_t sum;  // in units

  __device__ friend Above operator+(Above a, Above b) { return {a.count + b.count, a.sum + b.sum}; }
};

struct Histogram {
  uint32_t count[kBins];
  uint32_t limb[3][kBins];

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kHistogramThreads) {
      count[i] = limb[0][i] = limb[1][i] = limb[2][i] = 0;
    }
  }
  __device__ void add(uint32_t key, int digit) {
    const uint32_t bin = key >> digit_shift(digit) & (kBins - 1);
    const uint64_t units = units_of(__uint_as_float(key));
    atomicAdd(&count[bin], 1U);
    atomicAdd(&limb[0][bin], static_cast<uint32_t>(units) & 0xffffU);
    atomicAdd(&limb[1][bin], static_cast<uint32_t>(units >> 16) & 0xffffU);
    atomicAdd(&limb[2][bin], static_cast<uint32_t>(units >> 32));
  }
  __device__ Above bin(int i) const {
    return {count[i], limb[0][i] + (uint64_t{limb[1][i]} << 16) + (uint64_t{limb[2][i]} << 32)};
  }
};

// The keys that a digit is about: those that begin with the digits above it.
struct KeyRange {
  uint32_t first, last;
  float exponent_min, exponent_max;  // none of the keys is exp of less, or of more

  // Cheap, and sometimes true for a neighbour.
  __device__ bool may_hold(float exponent) const {
    return exponent >= exponent_min && exponent <= exponent_max;
  }
  __device__ bool holds(uint32_t key) const { return key > 0 && first <= key && key <= last; }
};

// A bound of the logarithm of a weight, `slack` of 2^-18 aside: more than the roundings of both
// functions. Near and below the least normal float there is no bound but this one.
__device__ inline float exponent_bound(float weight, float slack, float otherwise) {
  if (weight < 0x1p-120F) return otherwise;
  const float x = logf(weight);
  return x + slack * 0x1p-18F * (1.0F + fabsf(x));
}

__device__ inline KeyRange keys_of(uint32_t prefix, int digit) {
  if (digit == 0) return {0, ~0U >> 1, -INFINITY, INFINITY};
  const uint32_t last = prefix | ((1U << digit_shift(digit - 1)) - 1);
  return {prefix, last, exponent_bound(__uint_as_float(prefix), -1.0F, -INFINITY),
          exponent_bound(__uint_as_float(last), 1.0F, -82.0F)};
}

// The bins of a thread, from the highest down: those of thread 0 come first.
__device__ inline int bin_of_thread(int i) {
  return kBins - 1 - (static_cast<int>(threadIdx.x) * kBinsOfThread + i);
}

// Of the bins of the threads before this one. `shared` holds two values a warp.
__device__ inline Above sum_of_higher_bins(const Above (&own)[kBinsOfThread], uint64_t* shared) {
  Above mine{};
  for (const Above& bin : own) mine = mine + bin;
  Above sum = mine;
  for (int step = 1; step < kWarpSize; step *= 2) {
    const Above lower{__shfl_up_sync(kFullWarp, sum.count, step),
                      __shfl_up_sync(kFullWarp, sum.sum, step)};
    if (lane_of_thread() >= step) sum = sum + lower;
  }
  __syncthreads();
  if (lane_of_thread() == kWarpSize - 1) {
    shared[2 * warp_of_thread()] = sum.count;
    shared[2 * warp_of_thread() + 1] = sum.sum;
  }
  __syncthreads();
  for (int warp = 0; warp < warp_of_thread(); ++warp) {
    sum.count += static_cast<uint32_t>(shared[2 * warp]);
    sum.sum += shared[2 * warp + 1];
  }
  return {sum.count - mine.count, sum.sum - mine.sum};
}

// Of all bins: after sum_of_higher_bins, with its `shared`.
__device__ inline Above sum_of_all_bins(const uint64_t* shared) {
  Above sum{};
  for (int warp = 0; warp < kHistogramThreads / kWarpSize; ++warp) {
    sum.count += static_cast<uint32_t>(shared[2 * warp]);
    sum.sum += shared[2 * warp + 1];
  }
  return sum;
}

}  // namespace quire::cuda::sampling
