#include "kv/page_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PageTable, RowsAreIndependent) {
  PageTable table(2, 3);
  table.append(SlotId{0}, {.page = PageId{5}, .tag = 50});
  table.append(SlotId{1}, {.page = PageId{6}, .tag = 60});
  table.append(SlotId{1}, {.page = PageId{7}, .tag = 70});
  ASSERT_EQ(table.size(SlotId{0}), 1);
  EXPECT_EQ(table.row(SlotId{0})[0], (TaggedPage{.page = PageId{5}, .tag = 50}));
  ASSERT_EQ(table.row(SlotId{1}).size(), 2U);
  EXPECT_EQ(table.row(SlotId{1})[1], (TaggedPage{.page = PageId{7}, .tag = 70}));
  table.clear(SlotId{1});
  EXPECT_EQ(table.row(SlotId{1}).size(), 0U);
  EXPECT_EQ(table.size(SlotId{0}), 1);
}

TEST(PageTable, ARowThatIsFullTakesNoMore) {
  PageTable table(1, 1);
  table.append(SlotId{0}, {.page = PageId{5}, .tag = 50});
  EXPECT_DEATH(table.append(SlotId{0}, {.page = PageId{6}, .tag = 60}), "CHECK failed");
}

}  // namespace
}  // namespace quire
