#include "compress/lanes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/targets.h"

// After tensor/targets.h, which it must agree with.
#include <hwy/targets.h>

namespace quire {
namespace {

// Runs body() with each instruction set that this machine has.
template <class Body>
void on_every_target(const Body& body) {
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target | HWY_SSE4);
    hwy::GetChosenTarget().DeInit();
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

TEST(Lanes, GroupsLieSideBySideAndTheOthersAreZero) {
  on_every_target([] {
    for (const int64_t group : {16, 32, 128}) {
      for (const int64_t n_lanes : {1, 3, 4, 15, 16}) {
        std::vector<float> row(static_cast<size_t>(n_lanes * group));
        for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i + 1);
        std::vector<float> out(static_cast<size_t>(group * kFitLanes), -1.0F);
        gather_groups(row.data(), group, n_lanes, out.data());
        for (int64_t i = 0; i < group; ++i) {
          for (int64_t lane = 0; lane < kFitLanes; ++lane) {
            const auto expected = static_cast<float>(lane < n_lanes ? lane * group + i + 1 : 0);
            ASSERT_EQ(out[static_cast<size_t>(i * kFitLanes + lane)], expected);
          }
        }
      }
    }
  });
}

TEST(Lanes, CodesComeBackTwoAByteAndNothingElseIsWritten) {
  on_every_target([] {
    Rng rng(1);
    for (const int64_t group : {16, 32, 128}) {
      for (const int64_t n_lanes : {1, 3, 16}) {
        std::vector<uint8_t> codes(static_cast<size_t>(group * kFitLanes));
        for (uint8_t& code : codes) code = static_cast<uint8_t>(rng.next_float() * 16);
        const auto n_bytes = static_cast<size_t>(n_lanes * group / 2);
        std::vector<std::byte> out(n_bytes + 32, std::byte{0xee});
        scatter_nibbles(codes.data(), group, n_lanes, out.data());
        for (size_t i = 0; i < n_bytes; ++i) {
          const auto lane = static_cast<int64_t>(i) / (group / 2);
          const auto input = static_cast<int64_t>(i) % (group / 2) * 2;
          const int low = codes[static_cast<size_t>(input * kFitLanes + lane)];
          const int high = codes[static_cast<size_t>((input + 1) * kFitLanes + lane)];
          ASSERT_EQ(static_cast<int>(out[i]), low | high << 4);
        }
        for (size_t i = n_bytes; i < out.size(); ++i) ASSERT_EQ(out[i], std::byte{0xee});
      }
    }
  });
}

TEST(Lanes, SquaresAreSummedLaneByLaneInOrder) {
  on_every_target([] {
    Rng rng(2);
    for (const int64_t n : {0, 5, 16, 100}) {
      FitSums sums{};
      FitSums expected{};
      for (int call = 0; call < 2; ++call) {
        std::vector<float> weights;
        std::vector<float> values;
        for (int64_t i = 0; i < n; ++i) {
          weights.push_back(rng.next_float() - 0.5F);
          values.push_back(rng.next_float() - 0.5F);
          const auto lane = static_cast<size_t>(i % kFitLanes);
          const float off = weights.back() - values.back();
          expected.error[lane] += off * off;
          expected.weight[lane] += weights.back() * weights.back();
          expected.value[lane] += values.back() * values.back();
        }
        add_squares(weights.data(), values.data(), n, &sums);
      }
      EXPECT_EQ(sums.error, expected.error);
      EXPECT_EQ(sums.weight, expected.weight);
      EXPECT_EQ(sums.value, expected.value);
    }
  });
}

}  // namespace
}  // namespace quire
