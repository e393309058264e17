#include "tools/proportions.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

constexpr double kZ = 1.959963984540054;  // the normal quantile of 97.5 %

double share(const Counted& counted) {
  return static_cast<double>(counted.right) / static_cast<double>(counted.n);
}

}  // namespace

Interval wilson_interval(int64_t right, int64_t n) {
  const auto count = static_cast<double>(n);
  const double p = static_cast<double>(right) / count;
  const double scale = 1 + kZ * kZ / count;
  const double centre = (p + kZ * kZ / (2 * count)) / scale;
  const double half = kZ / scale * std::sqrt(p * (1 - p) / count + kZ * kZ / (4 * count * count));
  return {.low = std::max(0.0, centre - half), .high = std::min(1.0, centre + half)};
}

Interval paired_difference_interval(const PairedCounts& counts) {
  const auto n = static_cast<double>(counts.n) + 2;
  const double lost = (static_cast<double>(counts.lost) + 1) / n;
  const double won = (static_cast<double>(counts.won) + 1) / n;
  const double difference = won - lost;
  const double half = kZ * std::sqrt((won + lost - difference * difference) / n);
  return {.low = std::max(-1.0, difference - half), .high = std::min(1.0, difference + half)};
}

double mcnemar_p(const PairedCounts& counts) {
  const int64_t n = counts.lost + counts.won;
  const int64_t fewer = std::min(counts.lost, counts.won);
  double tail = 0;
  for (int64_t k = 0; k <= fewer; ++k) {
    const auto chosen = static_cast<double>(k);
    const auto all = static_cast<double>(n);
    tail += std::exp(std::lgamma(all + 1) - std::lgamma(chosen + 1) -
                     std::lgamma(all - chosen + 1) - all * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

Interval difference_interval(const Counted& first, const Counted& second) {
  const Interval a = wilson_interval(first.right, first.n);
  const Interval b = wilson_interval(second.right, second.n);
  const double p_a = share(first);
  const double p_b = share(second);
  const double difference = p_b - p_a;
  return {.low = difference - std::hypot(p_b - b.low, a.high - p_a),
          .high = difference + std::hypot(b.high - p_b, p_a - a.low)};
}

}  // namespace quire
