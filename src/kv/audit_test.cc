#include "kv/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int32_t kTokens = 2;

class AuditTest : public testing::Test {
 protected:
  TaggedPage allocate() {
    const TaggedPage page = pool_.allocate(RequestId{1}).value();
    known_.push_back({page, LeaseKind::request});
    return page;
  }
  std::vector<std::string> audit() const { return audit_pages(pool_, index_, known_); }

  PagePool pool_{6, kTokens};
  PrefixIndex index_{pool_, {}};
  std::vector<KnownLease> known_;
};

TEST_F(AuditTest, AnHonestStateIsClean) {
  EXPECT_THAT(audit(), IsEmpty());
  const TaggedPage page = allocate();
  allocate();
  ASSERT_TRUE(pool_.commit(page, kTokens).ok());
  const std::vector<Token> tokens{1, 2};
  const PageIdentity identity = index_.chain(index_.root({}), tokens);
  ASSERT_TRUE(pool_.seal(page, {}, identity).ok());
  ASSERT_EQ(index_.insert(page, identity, tokens), page);
  ASSERT_TRUE(pool_.take(page, LeaseKind::step).ok());
  known_.push_back({page, LeaseKind::step});
  EXPECT_THAT(audit(), IsEmpty());
}

TEST_F(AuditTest, ALeakedLeaseIsFound) {
  allocate();
  known_.clear();  // its holder has forgotten it
  ASSERT_EQ(audit().size(), 1U);
  EXPECT_THAT(audit()[0], HasSubstr("expected 0 leases of kind request, found 1"));
}

TEST_F(AuditTest, SurplusIsWhatNobodyHas) {
  const TaggedPage kept = allocate();
  const TaggedPage lost = allocate();
  known_.pop_back();
  ASSERT_TRUE(pool_.take(kept, LeaseKind::step).ok());
  const std::vector<KnownLease> surplus = surplus_leases(pool_, index_, known_);
  ASSERT_EQ(surplus.size(), 2U);
  for (const KnownLease& lease : surplus) {
    EXPECT_EQ(lease.page, lease.kind == LeaseKind::step ? kept : lost);
    EXPECT_TRUE(pool_.drop(lease.page, lease.kind).ok());
  }
  EXPECT_THAT(audit(), IsEmpty());
}

TEST_F(AuditTest, AHolderWithoutALeaseIsFound) {
  const TaggedPage page = allocate();
  known_.push_back({page, LeaseKind::request});
  ASSERT_EQ(audit().size(), 1U);
  EXPECT_THAT(audit()[0], HasSubstr("expected 2 leases of kind request, found 1"));
}

TEST_F(AuditTest, AHolderOfAnOldLifeIsFound) {
  const TaggedPage page = allocate();
  ASSERT_TRUE(pool_.drop(page, LeaseKind::request).ok());
  const std::vector<std::string> wrong = audit();
  ASSERT_FALSE(wrong.empty());
  EXPECT_THAT(wrong[0], HasSubstr("held with tag"));
}

TEST_F(AuditTest, AHolderOfNoPageIsFound) {
  known_.push_back({{.page = PageId{99}, .tag = 1}, LeaseKind::request});
  ASSERT_EQ(audit().size(), 1U);
  EXPECT_THAT(audit()[0], HasSubstr("not in the pool"));
}

// A second index over the same pool: what it published is not in the index that is audited.
TEST_F(AuditTest, AnIndexLeaseWithoutAnEntryIsFound) {
  const TaggedPage page = allocate();
  ASSERT_TRUE(pool_.commit(page, kTokens).ok());
  ASSERT_TRUE(pool_.seal(page, {}, {}).ok());
  ASSERT_TRUE(pool_.take(page, LeaseKind::index).ok());
  ASSERT_EQ(audit().size(), 1U);
  EXPECT_THAT(audit()[0], HasSubstr("expected 0 leases of kind index, found 1"));
}

TEST_F(AuditTest, AnEntryUnderAForeignIdentityIsFound) {
  const TaggedPage page = allocate();
  ASSERT_TRUE(pool_.commit(page, kTokens).ok());
  ASSERT_TRUE(pool_.seal(page, {}, {.low = 1}).ok());
  ASSERT_EQ(index_.insert(page, {.low = 2}, std::vector<Token>{1, 2}), page);
  ASSERT_EQ(audit().size(), 1U);
  EXPECT_THAT(audit()[0], HasSubstr("identity"));
}

}  // namespace
}  // namespace quire
