#include "compare.h"

#include <cmath>

namespace quire::ops_test {

namespace {

constexpr double kNormalFrom = 0x1p-120;  // smaller values have too few bits to point anywhere
constexpr size_t kCosineFrom = 64;        // values: below, rounding alone can turn a vector

double cosine(std::span<const float> found, std::span<const double> expected) {
  double dot = 0;
  double found_norm = 0;
  double expected_norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = found[i];
    if (!std::isfinite(value) || !std::isfinite(expected[i])) continue;
    if (std::abs(expected[i]) < kNormalFrom) continue;
    dot += value * expected[i];
    found_norm += value * value;
    expected_norm += expected[i] * expected[i];
  }
  if (found_norm == 0 || expected_norm == 0) return 1;
  return dot / std::sqrt(found_norm * expected_norm);
}

bool same_kind(double found, double expected) {
  if (std::isnan(expected) || std::isnan(found)) return std::isnan(expected) == std::isnan(found);
  if (std::isinf(expected) || std::isinf(found)) return found == expected;
  return true;
}

}  // namespace

testing::AssertionResult matches(std::span<const float> found, const Expected& expected,
                                 std::span<const int64_t> shape) {
  if (found.size() != expected.value.size() || found.size() != expected.bound.size()) {
    return testing::AssertionFailure()
           << found.size() << " values, expected " << expected.value.size();
  }
  size_t worst = 0;
  double worst_excess = 0;  // error / bound
  for (size_t i = 0; i < found.size(); ++i) {
    const double value = found[i];
    if (!same_kind(value, expected.value[i])) {
      return testing::AssertionFailure() << "at " << position_of(i, shape) << ": found " << value
                                         << ", expected " << expected.value[i];
    }
    if (!std::isfinite(value)) continue;
    const double excess = std::abs(value - expected.value[i]) / expected.bound[i];
    if (excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (worst_excess > 1) {
    return testing::AssertionFailure()
           << "at " << position_of(worst, shape) << ": found " << found[worst] << ", expected "
           << expected.value[worst] << " within " << expected.bound[worst] << " (" << worst_excess
           << " times the bound)";
  }
  const double angle = cosine(found, expected.value);
  if (found.size() >= kCosineFrom && angle < 1 - expected.cosine_loss) {
    return testing::AssertionFailure() << "cosine 1 - " << 1 - angle;
  }
  return testing::AssertionSuccess();
}

}  // namespace quire::ops_test
