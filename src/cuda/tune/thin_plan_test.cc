#include "cuda/tune/thin_plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

struct Matrix {
  int64_t n_out, n_in;
};

// Kimi K2 on one rank of eight and on one alone, and kimi-nano.
constexpr Matrix kMatrices[] = {{2112, 7168}, {1536, 1536},  {7168, 1024},  {384, 7168},
                                {4608, 7168}, {7168, 2304},  {20480, 7168}, {12288, 1536},
                                {7168, 8192}, {36864, 7168}, {7168, 18432}, {163840, 7168},
                                {128, 256},   {256, 96},     {320, 256},    {16, 16}};
constexpr int kSms = 132;

ThinShape shape_of(const Matrix& m) {
  return {.n_row_tiles = div_up(m.n_out, int64_t{kThinRows}),
          .n_chunks = div_up(m.n_in, int64_t{32}),
          .n_warps = 8};
}

TEST(ThinPlanTest, EveryShapeHasAPlan) {
  for (const Matrix& m : kMatrices) {
    for (const int n_sms : {1, kSms}) {
      const int splits = thin_splits(shape_of(m), n_sms);
      EXPECT_GE(splits, 1);
      EXPECT_LE(splits, kThinSplitsMax);
    }
  }
}

TEST(ThinPlanTest, SumsAreSharedWhereTilesAreFew) {
  EXPECT_EQ(thin_splits(shape_of({2112, 7168}), kSms), 2);
  EXPECT_EQ(thin_splits(shape_of({384, 7168}), kSms), 7);
  EXPECT_EQ(thin_splits(shape_of({20480, 7168}), kSms), 1);
}

}  // namespace

}  // namespace quire::cuda
