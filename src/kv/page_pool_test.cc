#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace quire {
namespace {

constexpr int32_t kTokens = 4;
constexpr RequestId kOwner{7};

// A page that `owner` has filled and sealed.
TaggedPage sealed_page(PagePool& pool) {
  const TaggedPage page = pool.allocate(kOwner).value();
  EXPECT_TRUE(pool.commit(page, kTokens).ok());
  EXPECT_TRUE(pool.seal(page, {.low = 1, .high = 2}, {.low = 3, .high = 4}).ok());
  return page;
}

void expect_refused(const Status& status) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::corruption);
}

TEST(PagePool, APageLivesFromAllocationToFree) {
  PagePool pool(3, kTokens);
  const TaggedPage page = pool.allocate(kOwner).value();
  EXPECT_NE(page.page, kNullPage);
  EXPECT_EQ(pool.entry(page.page).state, PageState::reserved);
  EXPECT_EQ(pool.entry(page.page).owner, kOwner.value);
  ASSERT_TRUE(pool.commit(page, 1).ok());
  EXPECT_EQ(pool.entry(page.page).state, PageState::filling);
  ASSERT_TRUE(pool.commit(page, kTokens).ok());
  ASSERT_TRUE(pool.seal(page, {.low = 1, .high = 2}, {.low = 3, .high = 4}).ok());
  EXPECT_EQ(pool.entry(page.page).state, PageState::sealed);
  EXPECT_EQ(pool.entry(page.page).owner, 0U);
  EXPECT_EQ(pool.entry(page.page).seal, (PageSeal{.low = 1, .high = 2}));
  ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
  EXPECT_EQ(pool.entry(page.page).state, PageState::free);
  EXPECT_EQ(pool.entry(page.page).committed, 0);
  EXPECT_EQ(pool.entry(page.page).seal, PageSeal{});
  EXPECT_EQ(pool.n_free(), 2);
}

TEST(PagePool, TheTagChangesOnFreeAndOnAllocation) {
  PagePool pool(2, kTokens);
  const TaggedPage first = pool.allocate(kOwner).value();
  ASSERT_TRUE(pool.drop(first, LeaseKind::request).ok());
  const PageTag while_free = pool.entry(first.page).tag;
  const TaggedPage second = pool.allocate(kOwner).value();
  EXPECT_EQ(first.page, second.page);
  EXPECT_EQ((std::set<PageTag>{first.tag, while_free, second.tag, kNoTag}).size(), 4U);
}

TEST(PagePool, TagsAreNeverUsedTwice) {
  PagePool pool(5, kTokens);
  std::set<PageTag> seen;
  for (int32_t p = 1; p <= 4; ++p) seen.insert(pool.entry(PageId{p}).tag);
  for (int i = 0; i < 1000; ++i) {
    const TaggedPage page = pool.allocate(kOwner).value();
    EXPECT_TRUE(seen.insert(page.tag).second);
    ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
    EXPECT_TRUE(seen.insert(pool.entry(page.page).tag).second);
  }
}

TEST(PagePool, AnEmptyPoolIsResourceExhausted) {
  PagePool pool(2, kTokens);
  ASSERT_TRUE(pool.allocate(kOwner).ok());
  EXPECT_EQ(pool.allocate(kOwner).error().code, ErrorCode::resource_exhausted);
}

TEST(PagePool, ADoubleFreeIsRefusedAndChangesNothing) {
  PagePool pool(3, kTokens);
  const TaggedPage page = pool.allocate(kOwner).value();
  ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
  expect_refused(pool.drop(page, LeaseKind::request));
  // Even when the page has a new owner by now, whose lease it would have taken.
  const TaggedPage again = pool.allocate(RequestId{8}).value();
  ASSERT_EQ(again.page, page.page);
  expect_refused(pool.drop(page, LeaseKind::request));
  EXPECT_EQ(pool.leases().count(again.page, LeaseKind::request), 1);
  EXPECT_EQ(pool.n_free(), 1);
}

TEST(PagePool, EveryCallOnAnOldLifeIsRefused) {
  PagePool pool(3, kTokens);
  const TaggedPage old = pool.allocate(kOwner).value();
  ASSERT_TRUE(pool.drop(old, LeaseKind::request).ok());
  ASSERT_TRUE(pool.allocate(kOwner).ok());
  expect_refused(pool.commit(old, 1));
  expect_refused(pool.seal(old, {}, {}));
  expect_refused(pool.take(old, LeaseKind::step));
}

TEST(PagePool, TheNullPageAndPagesOutsideAreRefused) {
  PagePool pool(3, kTokens);
  for (const int32_t p : {-1, 0, 3, 1000}) {
    for (const PageTag tag : {kNoTag, PageTag{1}}) {
      const TaggedPage page{.page = PageId{p}, .tag = tag};
      expect_refused(pool.commit(page, 1));
      expect_refused(pool.seal(page, {}, {}));
      expect_refused(pool.take(page, LeaseKind::step));
      expect_refused(pool.drop(page, LeaseKind::request));
    }
    expect_refused(pool.quarantine(PageId{p}));
    expect_refused(pool.release_quarantined(PageId{p}));
  }
}

TEST(PagePool, WrongTransitionsAreRefused) {
  PagePool pool(3, kTokens);
  const TaggedPage page = pool.allocate(kOwner).value();
  expect_refused(pool.seal(page, {}, {}));              // nothing in it
  expect_refused(pool.take(page, LeaseKind::index));    // not sealed
  expect_refused(pool.take(page, LeaseKind::request));  // not to be shared yet
  ASSERT_TRUE(pool.commit(page, 2).ok());
  expect_refused(pool.commit(page, 1));            // only grows
  expect_refused(pool.commit(page, kTokens + 1));  // past its end
  expect_refused(pool.seal(page, {}, {}));         // not full
  ASSERT_TRUE(pool.commit(page, kTokens).ok());
  ASSERT_TRUE(pool.seal(page, {}, {}).ok());
  expect_refused(pool.seal(page, {}, {}));     // once
  expect_refused(pool.commit(page, kTokens));  // immutable
  ASSERT_TRUE(pool.take(page, LeaseKind::index).ok());
  expect_refused(pool.take(page, LeaseKind::index));  // at most one entry
}

TEST(PagePool, APageDrainsUntilItsLastUserIsDone) {
  for (const LeaseKind kind : {LeaseKind::step, LeaseKind::copy, LeaseKind::transfer}) {
    PagePool pool(2, kTokens);
    const TaggedPage page = pool.allocate(kOwner).value();
    ASSERT_TRUE(pool.take(page, kind).ok());
    ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
    EXPECT_EQ(pool.entry(page.page).state, PageState::draining);
    EXPECT_EQ(pool.entry(page.page).tag, page.tag) << "its users still name this life";
    EXPECT_FALSE(pool.allocate(kOwner).ok());
    expect_refused(pool.take(page, kind));  // nobody new
    ASSERT_TRUE(pool.drop(page, kind).ok());
    EXPECT_EQ(pool.entry(page.page).state, PageState::free);
  }
}

TEST(PagePool, TheIndexAloneKeepsAPageSealedAndCached) {
  PagePool pool(2, kTokens);
  const TaggedPage page = sealed_page(pool);
  ASSERT_TRUE(pool.take(page, LeaseKind::index).ok());
  EXPECT_EQ(pool.n_cached(), 0);
  ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
  EXPECT_EQ(pool.entry(page.page).state, PageState::sealed);
  EXPECT_EQ(pool.n_cached(), 1);
  ASSERT_TRUE(pool.take(page, LeaseKind::request).ok());
  EXPECT_EQ(pool.n_cached(), 0);
  ASSERT_TRUE(pool.drop(page, LeaseKind::index).ok());
  ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
  EXPECT_EQ(pool.n_free(), 1);
}

TEST(PagePool, AQuarantinedPageServesItsHoldersAndNobodyElse) {
  PagePool pool(3, kTokens);
  const TaggedPage page = pool.allocate(kOwner).value();
  ASSERT_TRUE(pool.quarantine(page.page).ok());
  ASSERT_TRUE(pool.commit(page, 1).ok());  // its life goes on ...
  ASSERT_TRUE(pool.drop(page, LeaseKind::request).ok());
  EXPECT_EQ(pool.entry(page.page).state, PageState::quarantined);  // ... and then it is kept
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.count(PageState::quarantined), 1);
  ASSERT_TRUE(pool.release_quarantined(page.page).ok());
  EXPECT_EQ(pool.n_free(), 2);
  expect_refused(pool.release_quarantined(page.page));
}

TEST(PagePool, AFreePageIsQuarantinedAtOnce) {
  PagePool pool(3, kTokens);
  ASSERT_TRUE(pool.quarantine(PageId{2}).ok());
  EXPECT_EQ(pool.entry(PageId{2}).state, PageState::quarantined);
  EXPECT_EQ(pool.allocate(kOwner).value().page, PageId{1});
  EXPECT_FALSE(pool.allocate(kOwner).ok());
}

// Random calls, right and wrong, against a model of ten lines: who holds which life of a page.
TEST(PagePool, AgreesWithASetOfLeases) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    PagePool pool(6, kTokens);
    std::multiset<std::pair<int32_t, PageTag>> held;
    std::vector<TaggedPage> seen;
    for (int i = 0; i < 300; ++i) {
      if (seen.empty() || rng.next_below(3) == 0) {
        std::set<int32_t> busy;
        for (const auto& [page, tag] : held) busy.insert(page);
        const Result<TaggedPage> page = pool.allocate(kOwner);
        ASSERT_EQ(page.ok(), busy.size() < 5) << "seed " << seed;
        if (!page.ok()) continue;
        EXPECT_FALSE(busy.contains(page.value().page.value));
        held.insert({page.value().page.value, page.value().tag});
        seen.push_back(page.value());
        continue;
      }
      const TaggedPage page = seen[rng.next_below(seen.size())];
      const auto holder = held.find({page.page.value, page.tag});
      ASSERT_EQ(pool.drop(page, LeaseKind::request).ok(), holder != held.end());
      if (holder != held.end()) held.erase(holder);
    }
  }
}

}  // namespace
}  // namespace quire
