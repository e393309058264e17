// Step 4 of ops/sample.h: which weights are kept, and the draw among them. By all threads of a
// cluster alike.
#pragma once

#include "cuda/sample/row.cuh"

namespace quire::cuda::sampling {

// Which weights are kept: w > value, or w == value and the token below tie_end; and w >= floor.
struct Cut {
  float value = -1;
  int32_t tie_end = 0;
  float floor = 0;

  __device__ bool keeps(float w, int32_t token) const {
    return w >= floor && (w > value || (w == value && token < tie_end));
  }
  // Weights of smaller exponents are not kept.
  __device__ float exponent_min() const {
    return exponent_bound(fmaxf(value, floor), -1.0F, -INFINITY);
  }
};

// The token after the `count`-th weight equal to `value`, in order of token.
__device__ inline int32_t end_of_ties(const Row& row, const Weights& weights, float value,
                                      int64_t count) {
  int32_t ties = 0;
  const auto count_ties = [&](int32_t, const float(&v)[4], int n) {
    for (int j = 0; j < n; ++j) {
      ties += weights.of_exponent(weights.exponent(v[j])) == value ? 1 : 0;
    }
  };
  each_four(row, row.segment(), lane_of_thread(), kWarpSize, count_ties);
  ties = warp_sum(ties);
  if (lane_of_thread() == 0) row.shared.ties[warp_of_thread()] = ties;
  cluster_sync();
  int64_t before = 0;
  int32_t end = row.p.vocab;
  for (int s = 0; s < kSegments; ++s) {
    const int32_t here = row.of_block(s / kWarps).ties[s % kWarps];
    if (before + here >= count) {
      // Every thread walks the one segment that holds the end; it is short, and this is rare.
      const Range segment =
          part_of(part_of({0, row.p.vocab}, s / kWarps, kBlocks), s % kWarps, kWarps);
      for (int32_t i = segment.begin; i < segment.end; ++i) {
        if (weights.of_exponent(weights.exponent(row.logits[i])) == value && ++before == count) {
          return i + 1;
        }
      }
    }
    before += here;
  }
  return end;
}

// Adds the weights of the share that begin with `prefix`. The second digit keeps them for the
// third.
__device__ inline void fill_histogram(const Row& row, const Weights& weights, uint32_t prefix,
                                      int digit, Histogram* histogram) {
  const KeyRange range = keys_of(prefix, digit);
  Shared& shared = row.shared;
  if (digit == kDigits - 1 && shared.n_keys <= kKeysMax) {
    for (int i = static_cast<int>(threadIdx.x); i < shared.n_keys; i += kThreads) {
      if (range.holds(shared.keys[i])) histogram->add(shared.keys[i], digit);
    }
    return;
  }
  const float logit_min = weights.logit_bound(range.exponent_min, -1);
  const float logit_max = weights.logit_bound(range.exponent_max, 1);
  each_four_of_share(row, [&](int32_t, const float(&v)[4], int count) {
    for (int j = 0; j < 4; ++j) {
      if (j >= count || !(v[j] >= logit_min && v[j] <= logit_max)) continue;
      const uint32_t key = __float_as_uint(weights.of_exponent(weights.exponent(v[j])));
      if (!range.holds(key)) continue;
      histogram->add(key, digit);
      if (digit == 1) {
        const int place = atomicAdd(&shared.n_keys, 1);
        if (place < kKeysMax) shared.keys[place] = key;
      }
    }
  });
}

// The end of the kept prefix of the descending order: the least bits of a weight (non-negative
// floats order as their bits do) for which what lies above is still short of both limits, found a
// digit at a time.
__device__ inline Cut truncate(const Row& row, const Weights& weights) {
  const SamplerRow& settings = row.settings;
  Cut cut{.floor = settings.min_p};
  if (settings.top_k <= 0 && settings.top_p >= 1) return cut;
  uint32_t prefix = 0;  // the digits that were found
  Above above{};
  double p_end = 0;
  uint32_t n_equal = 0;
  if (threadIdx.x == 0) row.shared.n_keys = 0;
  for (int digit = 0; digit < kDigits; ++digit) {
    // Others may still read what was found in the digit before: everything is there twice.
    Histogram& histogram = row.shared.histogram[digit % 2];
    histogram.clear();
    __syncthreads();
    fill_histogram(row, weights, prefix, digit, &histogram);
    cluster_sync();
    // A block merges its share of the bins, the highest by its first thread.
    constexpr int kBinsOfBlock = kBins / kBlocks;
    static_assert(kBinsOfBlock == kThreads);
    const int rank = static_cast<int>(cluster_rank());
    const int bin = rank * kBinsOfBlock + kBinsOfBlock - 1 - static_cast<int>(threadIdx.x);
    Above own{};
    for (int block = 0; block < kBlocks; ++block) {
      own = own + row.of_block(block).histogram[digit % 2].bin(bin, prefix, digit);
    }
    const AboveSums sums = sums_of_threads(own, row.shared.scan);
    if (threadIdx.x == 0) {
      row.shared.bins_sum[digit % 2] = sums.all;
      row.shared.found_bin[digit % 2].bin = -1;
    }
    cluster_sync();
    Above higher{};
    Above all{};
    for (int block = 0; block < kBlocks; ++block) {
      const Above of_block = row.of_block(block).bins_sum[digit % 2];
      all = all + of_block;
      if (block > rank) higher = higher + of_block;
    }
    if (digit == 0) p_end = static_cast<double>(settings.top_p) * static_cast<double>(all.sum);
    const auto is_kept = [&](const Above& a) {
      return a.count == 0 ||
             ((settings.top_k <= 0 || a.count < static_cast<uint32_t>(settings.top_k)) &&
              (settings.top_p >= 1 || static_cast<double>(a.sum) < p_end));
    };
    // Bins from the highest down; the last whose higher ones leave room is the one.
    const Above at = above + higher + sums.before;
    if (is_kept(at) && (bin == 0 || !is_kept(at + own))) {
      row.shared.found_bin[digit % 2] = {.bin = bin, .count = own.count, .above = at};
    }
    cluster_sync();
    Found found = row.of_block(0).found_bin[digit % 2];
    for (int block = 1; block < kBlocks && found.bin < 0; ++block) {
      found = row.of_block(block).found_bin[digit % 2];
    }
    prefix = with_digit(prefix, digit, static_cast<uint32_t>(found.bin));
    above = found.above;
    n_equal = found.count;
  }
  cut.value = __uint_as_float(prefix);
  double ties = n_equal;  // of weights equal to cut.value, those still kept
  if (settings.top_k > 0) ties = min(ties, static_cast<double>(settings.top_k) - above.count);
  if (settings.top_p < 1 && prefix != 0) {
    const double units = static_cast<double>(units_of(cut.value));
    if (units > 0) ties = min(ties, ceil((p_end - static_cast<double>(above.sum)) / units));
  }
  if (above.count == 0) ties = max(ties, 1.0);
  cut.tie_end = row.p.vocab;
  if (ties < n_equal) {
    cut.tie_end = end_of_ties(row, weights, cut.value, static_cast<int64_t>(ties));
  }
  return cut;
}

// The lane's value and those of the lanes before it.
__device__ inline double prefix_sum(double x) {
  for (int step = 1; step < kWarpSize; step *= 2) {
    const double lower = __shfl_up_sync(kFullWarp, x, step);
    if (lane_of_thread() >= step) x += lower;
  }
  return x;
}

// The part at which the cumulated sum passes a target, or the last one that has any weight.
struct Passing {
  int part;
  double before;  // the sum of the parts before it
  double target;
};

// By every warp alike; parts are at most 4 a lane, and some have weight. `target_of` is given
// the sum of all.
template <class TargetOf>
__device__ inline Passing passing_of(const double* sums, int n, double before,
                                     const TargetOf& target_of) {
  constexpr int kOfLane = kSegments / kWarpSize;
  double own[kOfLane];
  double of_lane = 0;
  for (int i = 0; i < kOfLane; ++i) {
    const int part = kOfLane * lane_of_thread() + i;
    own[i] = part < n ? sums[part] : 0.0;
    of_lane += own[i];
  }
  const double end = prefix_sum(of_lane);
  const double target = target_of(__shfl_sync(kFullWarp, end, kWarpSize - 1));
  double at = before + (end - of_lane);
  int passing = n;  // of the lane's parts, the first that passes
  int last = -1;    // and the last with any weight
  double passing_before = 0;
  double last_before = 0;
  for (int i = 0; i < kOfLane; ++i) {
    if (own[i] > 0) {
      last = kOfLane * lane_of_thread() + i;
      last_before = at;
      if (at + own[i] > target && passing == n) {
        passing = last;
        passing_before = at;
      }
    }
    at += own[i];
  }
  const uint32_t lanes_passing = __ballot_sync(kFullWarp, passing < n);
  const uint32_t lanes_with = __ballot_sync(kFullWarp, last >= 0);
  if (lanes_passing != 0) {
    const int lane = __ffs(static_cast<int>(lanes_passing)) - 1;
    return {__shfl_sync(kFullWarp, passing, lane), __shfl_sync(kFullWarp, passing_before, lane),
            target};
  }
  const int lane = 31 - __clz(static_cast<int>(lanes_with));
  return {__shfl_sync(kFullWarp, last, lane), __shfl_sync(kFullWarp, last_before, lane), target};
}

// The first kept token at which the cumulated weight passes uniform * (sum of the kept). All
// threads of the block whose segment it is in return it; the others return -1.
__device__ inline int32_t draw(const Row& row, const Weights& weights, const Cut& cut) {
  const float logit_min = weights.logit_bound(cut.exponent_min(), -1);
  const auto kept_weight = [&](float logit, int32_t token) {
    const float w = weights.of_exponent(weights.exponent(logit));
    return logit >= logit_min && cut.keeps(w, token) ? w : 0.0F;
  };
  const Range segment = row.segment();
  double sum = 0;
  each_four(row, segment, lane_of_thread(), kWarpSize,
            [&](int32_t first, const float(&v)[4], int count) {
              for (int j = 0; j < 4; ++j) {
                if (j < count) sum += kept_weight(v[j], first + j);
              }
            });
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) row.shared.sums[warp_of_thread()] = sum;
  if (threadIdx.x == 0) row.shared.found = -1;
  cluster_sync();
  double* sums = row.shared.all_sums;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kSegments) sums[thread] = row.of_block(thread / kWarps).sums[thread % kWarps];
  __syncthreads();
  // Every thread alike: the segment that passes the target.
  const Passing passing =
      passing_of(sums, kSegments, 0, [&](double total) { return row.settings.uniform * total; });
  if (passing.part / kWarps != static_cast<int>(cluster_rank())) return -1;
  // The same among parts of the segment, and then among its tokens.
  const Range found = part_of(row.share, passing.part % kWarps, kWarps);
  const Range mine = part_of(found, warp_of_thread(), kWarps);
  sum = 0;
  for (int32_t i = mine.begin + lane_of_thread(); i < mine.end; i += kWarpSize) {
    sum += kept_weight(row.logits[i], i);
  }
  sum = warp_sum(sum);
  __syncthreads();
  if (lane_of_thread() == 0) sums[warp_of_thread()] = sum;
  __syncthreads();
  const Passing part =
      passing_of(sums, kWarps, passing.before, [&](double) { return passing.target; });
  if (part.part == warp_of_thread()) {
    double before = part.before;
    int32_t token = -1;
    for (int32_t first = mine.begin; first < mine.end; first += kWarpSize) {
      const int32_t i = first + lane_of_thread();
      const float w = i < mine.end ? kept_weight(row.logits[i], i) : 0.0F;
      const double prefix = prefix_sum(w);
      const uint32_t kept = __ballot_sync(kFullWarp, w > 0);
      const uint32_t passed = __ballot_sync(kFullWarp, w > 0 && before + prefix > passing.target);
      if (kept != 0) token = first + 31 - __clz(static_cast<int>(kept));
      if (passed != 0) {
        token = first + __ffs(static_cast<int>(passed)) - 1;
        break;
      }
      before += __shfl_sync(kFullWarp, prefix, kWarpSize - 1);
    }
    if (lane_of_thread() == 0) row.shared.found = token;
  }
  __syncthreads();
  return row.shared.found;
}

}  // namespace quire::cuda::sampling
