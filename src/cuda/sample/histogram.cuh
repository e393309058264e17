// Histogram: how many weights there are in each bin of their bits, and their sum, by the atomics of
// a block; and the search for a bin from the highest down.
//
// Weights lie in (0, 1]. Sums are in units of 2^-45, whole numbers, so that the order of the
// atomics does not matter. One bin of a digit is all keys that agree in it and in the digits above.
#pragma once

#include "cuda/common/reduce.cuh"

namespace quire::cuda::sampling {

inline constexpr int kHistogramThreads = 256;
inline constexpr int kBins = 2048;
inline constexpr int kDigits = 3;
// A block's weights, at most: what the fields of a bin are wide enough for.
inline constexpr int64_t kHistogramTokensMax = 32764;

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

// Two counters a bin. The weights of a bin share an exponent and lie above its least weight by less
// than 2^19 of their last bits, so that the sum of these rests says all: the count and the sum of
// the lowest two bits of the rests in one counter, the sum of the others in the second.
struct Histogram {
  static constexpr int kLowBits = 2;
  static constexpr int kCountShift = 17;  // 3 * 32,767 is less

  uint32_t low[kBins];
  uint32_t high[kBins];

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kHistogramThreads) {
      low[i] = high[i] = 0;
    }
  }
  // Weights of this exponent and more are whole numbers of units; those of less are rounded.
  static constexpr uint32_t kWholeExponent = 127 + 23 - 45;

  __device__ void add(uint32_t key, int digit) {
    const int shift = digit_shift(digit);
    const uint32_t least = key >> shift << shift;
    uint32_t rest = key - least;
    if (key >> 23 < kWholeExponent) {
      rest =
          static_cast<uint32_t>(units_of(__uint_as_float(key)) - units_of(__uint_as_float(least)));
    }
    const uint32_t bin = key >> shift & (kBins - 1);
    atomicAdd(&low[bin], 1U << kCountShift | (rest & ((1U << kLowBits) - 1)));
    // Of the last digit there is none.
    if (rest >> kLowBits != 0) atomicAdd(&high[bin], rest >> kLowBits);
  }
  // Bin i of a digit whose keys begin with `prefix`.
  __device__ Above bin(int i, uint32_t prefix, int digit) const {
    const uint32_t least = with_digit(prefix, digit, static_cast<uint32_t>(i));
    const uint32_t count = low[i] >> kCountShift;
    uint64_t rest = (low[i] & ((1U << kCountShift) - 1)) + (uint64_t{high[i]} << kLowBits);
    if (least >> 23 >= kWholeExponent) rest <<= (least >> 23) - kWholeExponent;
    return {count, count * units_of(__uint_as_float(least)) + rest};
  }
};

// The keys that a digit is about: those that begin with the digits above it.
struct KeyRange {
  uint32_t first, last;
  float exponent_min, exponent_max;  // none of the keys is exp of less, or of more

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

// Of the threads of the block before this one, and of all. `shared` holds two values a warp.
struct AboveSums {
  Above before, all;
};
__device__ inline AboveSums sums_of_threads(const Above& mine, uint64_t* shared) {
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
  AboveSums out{.before = {sum.count - mine.count, sum.sum - mine.sum}, .all = {}};
  for (int warp = 0; warp < kHistogramThreads / kWarpSize; ++warp) {
    const Above of_warp{static_cast<uint32_t>(shared[2 * warp]), shared[2 * warp + 1]};
    out.all = out.all + of_warp;
    if (warp < warp_of_thread()) out.before = out.before + of_warp;
  }
  return out;
}

}  // namespace quire::cuda::sampling
