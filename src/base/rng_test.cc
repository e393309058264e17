#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace quire {
namespace {

// The published test vector of SplitMix64 from seed 1234567 (Vigna, prng.di.unimi.it/splitmix64.c).
TEST(Rng, IsSplitMix64) {
  Rng rng(1234567);
  EXPECT_EQ(rng.next_u64(), 6457827717110365317U);
  EXPECT_EQ(rng.next_u64(), 3203168211198807973U);
  EXPECT_EQ(rng.next_u64(), 9817491932198370423U);
}

TEST(Rng, DrawsStayInRange) {
  Rng rng(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const float x = rng.next_float();
    EXPECT_TRUE(x >= 0 && x < 1);
    const uint64_t below = rng.next_below(7);
    EXPECT_LT(below, 7U);
    seen.insert(below);
  }
  EXPECT_EQ(seen.size(), 7U);
}

TEST(Rng, CounterDrawsDependOnEveryArgumentAndNothingElse) {
  EXPECT_EQ(counter_uniform(1, 2), counter_uniform(1, 2));
  EXPECT_NE(counter_uniform(1, 2), counter_uniform(2, 1));
  EXPECT_NE(counter_uniform(1, 2), counter_uniform(1, 3));
  EXPECT_NE(counter_uniform(1, 2, 0), counter_uniform(1, 2, 1));
  double sum = 0;
  for (uint64_t position = 0; position < 10'000; ++position) sum += counter_uniform(42, position);
  EXPECT_NEAR(sum / 10'000, 0.5, 0.012);  // 4 standard deviations of the mean of 10,000 draws
}

TEST(Rng, TheSystemGivesRandomBytes) {
  std::array<std::byte, 32> a{};
  std::array<std::byte, 32> b{};
  ASSERT_TRUE(fill_secure_random(a).ok());
  ASSERT_TRUE(fill_secure_random(b).ok());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace quire
