#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace quire {
namespace {

constexpr int32_t kTokens = 4;
constexpr RequestId kOwner{1};

class PrefixIndexTest : public testing::Test {
 protected:
  // Publishes the pages of `tokens`, filled by a request that then lets them go.
  std::vector<TaggedPage> publish(PrefixIndex& index, const PageIdentity& root,
                                  const std::vector<Token>& tokens) {
    std::vector<TaggedPage> pages;
    const std::vector<PageIdentity> chain = identities(index, root, tokens);
    PrefixLink link;
    for (size_t k = 0; k < chain.size(); ++k) {
      const TaggedPage page = pool_.allocate(kOwner).value();
      EXPECT_TRUE(pool_.commit(page, kTokens).ok());
      EXPECT_TRUE(pool_.seal(page, {}, chain[k]).ok());
      EXPECT_EQ(index.insert(page, chain[k], page_of(tokens, k), link), page);
      link.before = page;
      pages.push_back(page);
    }
    for (size_t k = pages.size(); k-- > 0;) {
      index.touch(pages[k].page);
      EXPECT_TRUE(pool_.drop(pages[k], LeaseKind::request).ok());
    }
    return pages;
  }

  static std::span<const Token> page_of(const std::vector<Token>& tokens, size_t k) {
    return std::span(tokens).subspan(k * kTokens, kTokens);
  }

  static std::vector<PageIdentity> identities(const PrefixIndex& index, PageIdentity identity,
                                              const std::vector<Token>& tokens) {
    std::vector<PageIdentity> chain;
    for (size_t k = 0; (k + 1) * kTokens <= tokens.size(); ++k) {
      chain.push_back(identity = index.chain(identity, page_of(tokens, k)));
    }
    return chain;
  }

  static int32_t pages_found(const PrefixIndex& index, const PageIdentity& root,
                             const std::vector<Token>& tokens) {
    return index.peek(identities(index, root, tokens), tokens).pages;
  }

  PagePool pool_{12, kTokens};
  PrefixIndex index_{pool_, {}};
  const PageIdentity root_ = index_.root({});
  const std::vector<Token> text_{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
};

TEST_F(PrefixIndexTest, FindsWhatWasPublishedAndNoMore) {
  const std::vector<TaggedPage> pages = publish(index_, root_, text_);
  EXPECT_EQ(pages_found(index_, root_, text_), 3);
  std::vector<Token> other = text_;
  other[6] = 60;  // in the second page
  EXPECT_EQ(pages_found(index_, root_, other), 1);
  other[0] = 60;
  EXPECT_EQ(pages_found(index_, root_, other), 0);
}

TEST_F(PrefixIndexTest, TheSamePageAfterAnotherBeginningIsAnotherPage) {
  publish(index_, root_, text_);
  const std::vector<Token> moved{5, 6, 7, 8, 9, 10, 11, 12};  // its second and third pages
  EXPECT_EQ(pages_found(index_, root_, moved), 0);
}

TEST_F(PrefixIndexTest, TenantsAndSettingsNeverMeet) {
  publish(index_, root_, text_);
  EXPECT_EQ(pages_found(index_, index_.root({1}), text_), 0);
  const std::vector<PrefixDomain> domains = {
      {.model_lineage = {1}},
      {.weight_format = WeightFormat::int4_group},
      {.activation = Activation::fp8_group128},
      {.kv_format = KvFormat::fp8_e4m3_584},
      {.path_class = 1},
  };
  for (const PrefixDomain& domain : domains) {
    EXPECT_NE(PrefixIndex(pool_, domain).root({}), root_);
  }
}

TEST_F(PrefixIndexTest, EqualHashesAreNotTakenAsProof) {
  PrefixIndex narrow(pool_, {}, 1);  // two identities in all
  publish(narrow, narrow.root({}), {1, 2, 3, 4});
  int collisions = 0;
  for (Token t = 10; t < 60; ++t) {
    const std::vector<Token> other{t, t, t, t};
    EXPECT_EQ(pages_found(narrow, narrow.root({}), other), 0);
    collisions += narrow.chain(narrow.root({}), other) ==
                  narrow.chain(narrow.root({}), std::vector<Token>{1, 2, 3, 4});
  }
  EXPECT_GT(collisions, 10) << "the test did not force equal hashes";
}

// With narrow identities, pages of equal tokens behind different beginnings may collide.
TEST_F(PrefixIndexTest, EqualTokensBehindAnotherBeginningAreAnotherHistory) {
  PrefixIndex narrow(pool_, {}, 8);
  const std::vector<Token> text{1, 2, 3, 4, 5, 6, 7, 8};
  publish(narrow, narrow.root({}), text);
  ASSERT_EQ(pages_found(narrow, narrow.root({}), text), 2);
  // Its second page alone, and the same behind a page that is not here.
  const std::vector<Token> second{5, 6, 7, 8};
  const PageIdentity identity = identities(narrow, narrow.root({}), text)[1];
  const std::vector<PageIdentity> alone{identity};
  EXPECT_EQ(narrow.peek(alone, second).pages, 0);
  EXPECT_EQ(narrow.acquire(identity, second), TaggedPage{});
  EXPECT_EQ(narrow.acquire(identity, second, {.before = {PageId{9}, 1}}), TaggedPage{});
  EXPECT_EQ(narrow.foreign_entries(), 0U);
}

// The key of a tenant that leaves the tenant out: the comparison is left.
TEST_F(PrefixIndexTest, ATenantIsComparedEvenWhenTheKeyForgetsIt) {
  const std::vector<Token> tokens{1, 2, 3, 4};
  publish(index_, root_, tokens);
  const PageIdentity identity = index_.chain(root_, tokens);
  EXPECT_EQ(index_.acquire(identity, tokens, {.tenant = {1}}), TaggedPage{});
  EXPECT_EQ(index_.foreign_entries(), 1U);
  EXPECT_EQ(index_.peek({&identity, 1}, tokens, {1}).pages, 0);
  EXPECT_EQ(index_.peek({&identity, 1}, tokens).pages, 1);
}

TEST_F(PrefixIndexTest, WhatStandsBehindAPageThatHasGoneMakesRoom) {
  const std::vector<Token> text{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<TaggedPage> pages = publish(index_, root_, text);
  ASSERT_TRUE(index_.remove(pages[0].page).ok());
  EXPECT_EQ(pages_found(index_, root_, text), 0);
  const std::vector<TaggedPage> again = publish(index_, root_, text);
  EXPECT_EQ(pages_found(index_, root_, text), 2);
  EXPECT_FALSE(index_.contains(pages[1].page));
  EXPECT_EQ(index_.size(), 2);
}

TEST_F(PrefixIndexTest, NothingIsPublishedBehindAPageThatHasGone) {
  const TaggedPage first = publish(index_, root_, {1, 2, 3, 4})[0];
  ASSERT_TRUE(index_.evict_one());
  const TaggedPage page = pool_.allocate(kOwner).value();
  const std::vector<Token> tokens{5, 6, 7, 8};
  ASSERT_TRUE(pool_.commit(page, kTokens).ok());
  ASSERT_TRUE(pool_.seal(page, {}, {.low = 3}).ok());
  EXPECT_EQ(index_.insert(page, {.low = 3}, tokens, {.before = first}), TaggedPage{});
}

TEST_F(PrefixIndexTest, APageFoundIsHeldFromThatMomentOn) {
  const std::vector<TaggedPage> pages = publish(index_, root_, {1, 2, 3, 4});
  const TaggedPage found =
      index_.acquire(identities(index_, root_, {1, 2, 3, 4})[0], std::vector<Token>{1, 2, 3, 4});
  EXPECT_EQ(found, pages[0]);
  EXPECT_EQ(pool_.leases().count(found.page, LeaseKind::request), 1);
  EXPECT_FALSE(index_.evict_one());
}

TEST_F(PrefixIndexTest, OnlySealedPagesGetIn) {
  const TaggedPage page = pool_.allocate(kOwner).value();
  const std::vector<Token> tokens{1, 2, 3, 4};
  EXPECT_EQ(index_.insert(page, index_.chain(root_, tokens), tokens), TaggedPage{});
  EXPECT_EQ(pages_found(index_, root_, tokens), 0);
}

TEST_F(PrefixIndexTest, APageToBeQuarantinedStaysOut) {
  const TaggedPage page = pool_.allocate(kOwner).value();
  const std::vector<Token> tokens{1, 2, 3, 4};
  const PageIdentity identity = index_.chain(root_, tokens);
  ASSERT_TRUE(pool_.commit(page, kTokens).ok());
  ASSERT_TRUE(pool_.quarantine(page.page).ok());
  ASSERT_TRUE(pool_.seal(page, {}, identity).ok());
  EXPECT_EQ(index_.insert(page, identity, tokens), TaggedPage{});
  ASSERT_TRUE(pool_.drop(page, LeaseKind::request).ok());
  EXPECT_EQ(pool_.count(PageState::quarantined), 1);
}

TEST_F(PrefixIndexTest, AnEntryOfAnotherLifeIsForgottenWhenItIsMet) {
  const TaggedPage page = publish(index_, root_, {1, 2, 3, 4})[0];
  ASSERT_TRUE(pool_.drop(page, LeaseKind::index).ok());  // freed behind the index
  const std::vector<Token> tokens{1, 2, 3, 4};
  EXPECT_TRUE(index_.contains(page.page));
  EXPECT_EQ(index_.acquire(index_.chain(root_, tokens), tokens), TaggedPage{});
  EXPECT_FALSE(index_.contains(page.page));
  EXPECT_EQ(index_.stale_entries(), 1U);
  EXPECT_EQ(pool_.count(PageState::free), pool_.total());
}

// The page has been sealed again, for somebody else: its state alone does not show it.
TEST_F(PrefixIndexTest, AnEntryIsOfOneLifeAndNotOfThePageForEver) {
  const std::vector<Token> tokens{1, 2, 3, 4};
  const TaggedPage page = publish(index_, root_, tokens)[0];
  ASSERT_TRUE(pool_.drop(page, LeaseKind::index).ok());  // freed behind the index
  const TaggedPage again = pool_.allocate(kOwner).value();
  ASSERT_EQ(again.page, page.page);
  ASSERT_TRUE(pool_.commit(again, kTokens).ok());
  ASSERT_TRUE(pool_.seal(again, {}, {.low = 1}).ok());
  EXPECT_EQ(pages_found(index_, root_, tokens), 0);
  index_.forget_stale();
  EXPECT_EQ(index_.stale_entries(), 1U);
  EXPECT_FALSE(index_.contains(page.page));
}

TEST_F(PrefixIndexTest, TheSecondPageOfAnIdentityStaysOut) {
  const TaggedPage first = publish(index_, root_, {1, 2, 3, 4})[0];
  const TaggedPage twin = pool_.allocate(kOwner).value();
  const std::vector<Token> tokens{1, 2, 3, 4};
  const PageIdentity identity = index_.chain(root_, tokens);
  ASSERT_TRUE(pool_.commit(twin, kTokens).ok());
  ASSERT_TRUE(pool_.seal(twin, {}, identity).ok());
  EXPECT_EQ(index_.insert(twin, identity, tokens), first);
  ASSERT_TRUE(pool_.drop(twin, LeaseKind::request).ok());
  EXPECT_EQ(pool_.entry(twin.page).state, PageState::free);
}

TEST_F(PrefixIndexTest, TheLongestUnusedGoesFirstAndTheEndOfAPrefixBeforeItsBeginning) {
  const std::vector<TaggedPage> old = publish(index_, root_, text_);
  const std::vector<TaggedPage> young = publish(index_, root_, {50, 51, 52, 53});
  for (const size_t k : {2U, 1U, 0U}) {
    ASSERT_TRUE(index_.evict_one());
    EXPECT_FALSE(index_.contains(old[k].page));
    EXPECT_EQ(pages_found(index_, root_, text_), static_cast<int32_t>(k));
  }
  EXPECT_TRUE(index_.contains(young[0].page));
  ASSERT_TRUE(index_.evict_one());
  EXPECT_FALSE(index_.evict_one());
  EXPECT_EQ(pool_.n_free(), pool_.total());
}

TEST_F(PrefixIndexTest, UseMakesYoung) {
  publish(index_, root_, {1, 2, 3, 4});
  publish(index_, root_, {5, 6, 7, 8});
  const std::vector<Token> first{1, 2, 3, 4};
  const TaggedPage used = index_.acquire(index_.chain(root_, first), first);
  index_.touch(used.page);
  ASSERT_TRUE(pool_.drop(used, LeaseKind::request).ok());
  ASSERT_TRUE(index_.evict_one());
  EXPECT_EQ(pages_found(index_, root_, first), 1);
}

TEST_F(PrefixIndexTest, AQuarantinedPageIsNotFound) {
  const std::vector<TaggedPage> pages = publish(index_, root_, {1, 2, 3, 4});
  ASSERT_TRUE(pool_.quarantine(pages[0].page).ok());
  EXPECT_EQ(pages_found(index_, root_, {1, 2, 3, 4}), 0);
  ASSERT_TRUE(index_.remove(pages[0].page).ok());
  EXPECT_EQ(pool_.count(PageState::quarantined), 1);
}

// The bytes of docs/formats/page_tag.md, written out here once more.
TEST_F(PrefixIndexTest, TheChainIsAsTheFormatSays) {
  const PrefixIndex index(pool_, {.model_lineage = {9, 8},
                                  .weight_format = WeightFormat::fp8_block128,
                                  .activation = Activation::fp8_group128,
                                  .kv_format = KvFormat::fp8_e4m3_584,
                                  .path_class = 1});
  std::array<uint8_t, 72> domain{};
  domain[0] = 7;                                          // tenant salt
  domain[16] = 9, domain[17] = 8;                         // lineage
  domain[32] = domain[33] = domain[34] = domain[35] = 1;  // formats and path class
  domain[36] = 2;                                         // layout version
  const XXH128_hash_t root = XXH3_128bits(domain.data(), domain.size());
  EXPECT_EQ(index.root({7}), (PageIdentity{.low = root.low64, .high = root.high64}));

  const std::array<int32_t, 8> page{5, 0, 6, 0, 1, 2, 3, 0x01020304};
  const XXH128_hash_t next = XXH3_128bits(page.data(), sizeof(page));
  EXPECT_EQ(index.chain({.low = 5, .high = 6}, std::span(page).subspan(4)),
            (PageIdentity{.low = next.low64, .high = next.high64}));
}

TEST_F(PrefixIndexTest, EveryTokenAndTheParentCount) {
  const std::vector<Token> tokens{1, 2, 3, 4};
  const PageIdentity identity = index_.chain(root_, tokens);
  EXPECT_EQ(identity, index_.chain(root_, tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<Token> changed = tokens;
    ++changed[i];
    EXPECT_NE(identity, index_.chain(root_, changed));
  }
  EXPECT_NE(identity, index_.chain(identity, tokens));
  EXPECT_NE(identity, index_.chain(root_, std::vector<Token>{4, 3, 2, 1}));
}

}  // namespace
}  // namespace quire
