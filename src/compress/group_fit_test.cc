#include "compress/group_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "tensor/targets.h"

// After tensor/targets.h, which it must agree with.
#include <hwy/targets.h>

namespace quire {
namespace {

// Sixteen groups of about normal weights, of sizes from 1e-3 to 1e3; some lanes are special.
std::vector<float> draw(int64_t group, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<size_t>(group * kFitLanes));
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = -6;
    for (int k = 0; k < 12; ++k) sum += static_cast<double>(rng.next_float());
    const double size = std::pow(10.0, static_cast<double>(i % kFitLanes) / 2.5 - 3);
    out[i] = static_cast<float>(sum * size);
    if (i % kFitLanes == 3) out[i] = 0;
    if (i % kFitLanes == 4) out[i] = i < kFitLanes ? -1.0F : 0;
    if (i % kFitLanes == 5) out[i] = 1e-41F;
  }
  return out;
}

// The error of a lane at some scale, each weight at the nearest of -8..7.
double int4_error(const std::vector<float>& w, int64_t group, size_t lane, double scale) {
  double error = 0;
  for (int64_t i = 0; i < group; ++i) {
    const double weight = static_cast<double>(w[static_cast<size_t>(i * kFitLanes) + lane]);
    const double q = std::min(std::max(std::nearbyint(weight / scale), -8.0), 7.0);
    error += (weight - q * scale) * (weight - q * scale);
  }
  return error;
}

TEST(GroupFit, Int4FindsAScaleThatFewOthersBeat) {
  for (const int64_t group : {32, 128}) {
    double ratios = 0;
    int n_ratios = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const std::vector<float> w = draw(group, seed);
      Int4Fit fit;
      fit_int4(w.data(), group, &fit);
      for (size_t lane = 0; lane < kFitLanes; ++lane) {
        const auto scale = static_cast<double>(to_float(fit.scale[lane]));
        ASSERT_GT(scale, 0);
        double largest = 0;
        double value_error = 0;
        for (int64_t i = 0; i < group; ++i) {
          const size_t at = static_cast<size_t>(i * kFitLanes) + lane;
          ASSERT_LE(fit.codes[at], 15);
          const double off = static_cast<double>(w[at]) - (fit.codes[at] - 8) * scale;
          value_error += off * off;
          largest = std::max(largest, std::abs(static_cast<double>(w[at])));
        }
        // The codes are the nearest ones, and the sum is theirs.
        const double reached = int4_error(w, group, lane, scale);
        EXPECT_NEAR(value_error, reached, 1e-5 * reached + 1e-60);
        EXPECT_NEAR(static_cast<double>(fit.sums.error[lane]), value_error,
                    1e-5 * value_error + 1e-37);
        if (largest < 1e-30) continue;
        // Never worse than no search at all, and close to a search of 400 scales.
        EXPECT_LE(reached, int4_error(w, group, lane, largest / 7) * 1.02);
        double best = reached;
        for (int k = 0; k < 400; ++k) {
          best = std::min(best, int4_error(w, group, lane, largest / (6.5 + 0.015 * k)));
        }
        if (best == 0) continue;
        EXPECT_LE(reached, best * 1.5) << "group " << group << " seed " << seed;
        ratios += reached / best;
        ++n_ratios;
      }
    }
    EXPECT_LE(ratios / n_ratios, 1.04) << "group " << group;
  }
}

TEST(GroupFit, ZerosStayZeros) {
  const std::vector<float> w(kInt4GroupMax * kFitLanes, 0.0F);
  Int4Fit fit;
  fit_int4(w.data(), 128, &fit);
  EXPECT_EQ(to_float(fit.scale[0]), 1);
  for (const uint8_t code : fit.codes) EXPECT_EQ(code, 8);
  Nvfp4Fit small;
  fit_nvfp4(w.data(), nvfp4_tensor_scale(0), &small);
  for (const uint8_t code : small.codes) EXPECT_EQ(code, 0);
  EXPECT_EQ(small.sums.error[7], 0);
}

constexpr float kE2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

TEST(GroupFit, Nvfp4CodesAreTheNearestValues) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> w = draw(kNvfp4Group, seed);
    float largest = 0;
    for (const float x : w) largest = std::max(largest, std::abs(x));
    const float tensor_scale = nvfp4_tensor_scale(largest);
    Nvfp4Fit fit;
    fit_nvfp4(w.data(), tensor_scale, &fit);
    for (size_t lane = 0; lane < kFitLanes; ++lane) {
      const float scale = to_float(Fp8E4m3{fit.scale[lane]}) * tensor_scale;
      ASSERT_GT(scale, 0);
      for (int64_t i = 0; i < kNvfp4Group; ++i) {
        const size_t at = static_cast<size_t>(i * kFitLanes) + lane;
        ASSERT_LE(fit.codes[at], 15);
        const float size = kE2m1[fit.codes[at] & 7];
        const float off = std::abs(std::abs(w[at]) - size * scale);
        for (const float other : kE2m1) {
          EXPECT_LE(off, std::abs(std::abs(w[at]) - other * scale) * 1.00001F);
        }
        if (w[at] == 0) continue;
        EXPECT_EQ((fit.codes[at] & 8) != 0, w[at] < 0);
      }
    }
  }
}

TEST(GroupFit, TiesGoToTheEvenCode) {
  struct Tie {
    float weight;
    uint8_t code;
  };
  constexpr Tie kTies[] = {{0.25F, 0}, {0.75F, 2}, {1.25F, 2}, {1.75F, 4},
                           {2.5F, 4},  {3.5F, 6},  {5, 6},     {-2.5F, 12}};
  // Beside it, what only a scale of 1 fits.
  const float others[] = {0.5F, 1, 1.5F, 2, 3, 4, 6, -0.5F, -1, -1.5F, -2, -3, -4, -6, 6};
  for (const Tie& tie : kTies) {
    std::vector<float> w(kNvfp4Group * kFitLanes, 0.0F);
    w[0] = tie.weight;
    for (size_t i = 0; i < 15; ++i) w[(i + 1) * kFitLanes] = others[i];
    Nvfp4Fit fit;
    fit_nvfp4(w.data(), 1, &fit);
    ASSERT_EQ(to_float(Fp8E4m3{fit.scale[0]}), 1) << tie.weight;
    EXPECT_EQ(fit.codes[0], tie.code) << tie.weight;
  }
}

// Runs with exactly this instruction set; SSE4 is always there.
std::vector<char> run_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target | HWY_SSE4);
  hwy::GetChosenTarget().DeInit();
  std::vector<char> bytes;
  {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      for (const int64_t group : {32, 128}) {
        Int4Fit fit = {};
        fit_int4(draw(group, seed).data(), group, &fit);
        const auto* begin = reinterpret_cast<const char*>(&fit);
        bytes.insert(bytes.end(), begin, begin + sizeof fit);
      }
      Nvfp4Fit fit = {};
      fit_nvfp4(draw(kNvfp4Group, seed).data(), 0.01F, &fit);
      const auto* begin = reinterpret_cast<const char*>(&fit);
      bytes.insert(bytes.end(), begin, begin + sizeof fit);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  return bytes;
}

TEST(GroupFit, EveryInstructionSetGivesTheSameBits) {
  const int64_t supported = hwy::SupportedTargets();
  const std::vector<char> expected = run_on(HWY_SSE4);
  for (const int64_t target : {HWY_AVX2, HWY_AVX3}) {
    if ((supported & target) == 0) continue;
    EXPECT_EQ(run_on(target), expected) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace quire
