#include "cpu/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace quire::cpu {

namespace {

TEST(Rows, ExpIsWithinTwoUnits) {
  std::vector<float> x;
  for (float value = -87.0F; value < 88.0F; value += 0.0137F) x.push_back(value);
  std::vector<float> out(x.size());
  exp_row(x.data(), static_cast<int64_t>(x.size()), 0.0F, 1.0F, out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(out[i], expected, expected * 2 * 0x1p-23) << x[i];
  }
}

TEST(Rows, ExpAtTheEnds) {
  const std::vector<float> x = {-INFINITY, -1e30F, -88, 0, 89, INFINITY, NAN};
  std::vector<float> out(x.size());
  exp_row(x.data(), static_cast<int64_t>(x.size()), 0.0F, 1.0F, out.data());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 1);
  EXPECT_EQ(out[4], INFINITY);
  EXPECT_EQ(out[5], INFINITY);
  EXPECT_TRUE(std::isnan(out[6]));
}

}  // namespace

}  // namespace quire::cpu
