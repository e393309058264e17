// Whether an op computed what its reference says: NaN and infinity in the same places, every value
// within its own bound, the whole in the same direction.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "arrays.h"
#include "reference.h"

namespace quire::ops_test {

// Names the worst element when it fails.
testing::AssertionResult matches(std::span<const float> found, const Expected& expected,
                                 std::span<const int64_t> shape);

template <int Rank>
testing::AssertionResult matches(const HostArray<Bf16, Rank>& found, const Expected& expected) {
  std::vector<float> values;
  for (const Bf16 x : found.values) values.push_back(to_float(x));
  return matches(values, expected, found.shape);
}

template <int Rank>
testing::AssertionResult matches(const HostArray<float, Rank>& found, const Expected& expected) {
  return matches(found.values, expected, found.shape);
}

}  // namespace quire::ops_test
