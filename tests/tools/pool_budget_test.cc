#include "tools/pool_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PoolBudget, TakesWhatTheFractionLeaves) {
  PoolBudget budget{.total_bytes = 1000, .free_bytes = 500, .fraction = 0.9, .page_bytes = 10};
  // 500 free less 100 left alone: 40 pages, one of them the null page.
  EXPECT_EQ(pages_in_budget(budget, 1).value(), 39);
  budget.pages_wanted = 12;
  EXPECT_EQ(pages_in_budget(budget, 1).value(), 12);
  budget.pages_wanted = 100;
  EXPECT_EQ(pages_in_budget(budget, 1).value(), 39);
}

TEST(PoolBudget, NeverPassesWhatIsFree) {
  for (int64_t free = 0; free < 400; free += 7) {
    for (const double fraction : {0.5, 0.9, 0.95, 1.0}) {
      const auto pages = pages_in_budget(
          {.total_bytes = 400, .free_bytes = free, .fraction = fraction, .page_bytes = 10}, 1);
      if (!pages.ok()) continue;
      EXPECT_LE((pages.value() + 1) * 10, free);
    }
  }
}

TEST(PoolBudget, SaysWhatToLower) {
  const auto pages = pages_in_budget(
      {.total_bytes = 1000, .free_bytes = 120, .fraction = 0.9, .page_bytes = 10}, 2);
  ASSERT_FALSE(pages.ok());
  EXPECT_EQ(pages.error().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(pages.error().message, testing::HasSubstr("--chunked-prefill-size"));
  EXPECT_THAT(pages.error().message, testing::HasSubstr("--mem-fraction-static 0.9"));
}

}  // namespace
}  // namespace quire
