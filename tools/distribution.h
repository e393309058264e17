// Distribution: the usual figures of a list of durations. For reports; not for metrics.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/json.h"

namespace quire {

// mean, median, p95 and p99 of `values`, in their unit; null when there is none. A percentile is
// the smallest value that at least so many of a hundred do not pass (nearest rank).
inline Json describe_distribution(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto percentile = [&](double percent) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * n));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  return {
      {"mean", mean}, {"median", percentile(50)}, {"p95", percentile(95)}, {"p99", percentile(99)}};
}

}  // namespace quire
