#include "kv/audit.h"

#include <array>
#include <cinttypes>

#include "base/text.h"

namespace quire {

namespace {

using Findings = std::vector<std::string>;

void audit_partition(const PagePool& pool, Findings* wrong) {
  std::array<int32_t, kPageStates> counts{};
  int32_t cached = 0;
  for (int32_t p = 1; p <= pool.total(); ++p) {
    ++counts[static_cast<size_t>(pool.entry(PageId{p}).state)];
    if (pool.leases().is_held_by_index_alone(PageId{p})) ++cached;
  }
  for (size_t s = 0; s < kPageStates; ++s) {
    const auto state = static_cast<PageState>(s);
    if (counts[s] != pool.count(state)) {
      wrong->push_back(format("%s pages: expected %d, found %d", name(state).data(),
                              pool.count(state), counts[s]));
    }
  }
  if (cached != pool.n_cached()) {
    wrong->push_back(format("cached pages: expected %d, found %d", pool.n_cached(), cached));
  }
}

void audit_free_list(const PagePool& pool, Findings* wrong) {
  std::vector<uint8_t> seen(pool.directory().size(), 0);
  for (const PageId page : pool.free_list()) {
    if (pool.entry(page).state != PageState::free) {
      wrong->push_back(format("page %d: on the free list, found %s", page.value,
                              name(pool.entry(page).state).data()));
    }
    if (seen[static_cast<size_t>(page.value)]++ != 0) {
      wrong->push_back(format("page %d: twice on the free list", page.value));
    }
  }
  if (static_cast<int32_t>(pool.free_list().size()) != pool.n_free()) {
    wrong->push_back(
        format("free list: expected %d pages, found %zu", pool.n_free(), pool.free_list().size()));
  }
}

void audit_leases(const PagePool& pool, const PrefixIndex& index, std::span<const KnownLease> known,
                  Findings* wrong) {
  LeaseTable expected(static_cast<int32_t>(pool.directory().size()));
  for (const KnownLease& lease : known) {
    if (lease.page.page.value <= 0 || lease.page.page.value > pool.total()) {
      wrong->push_back(format("page %d: held, and not in the pool", lease.page.page.value));
      continue;
    }
    expected.take(lease.page.page, lease.kind);
    const PageEntry& entry = pool.entry(lease.page.page);
    if (entry.tag != lease.page.tag) {
      wrong->push_back(format("page %d: held with tag %" PRIx64 ", found %" PRIx64,
                              lease.page.page.value, lease.page.tag, entry.tag));
    }
  }
  for (int32_t p = 1; p <= pool.total(); ++p) {
    const PageId page{p};
    if (index.contains(page)) expected.take(page, LeaseKind::index);
    for (size_t k = 0; k < kLeaseKinds; ++k) {
      const auto kind = static_cast<LeaseKind>(k);
      if (expected.count(page, kind) != pool.leases().count(page, kind)) {
        wrong->push_back(format("page %d: expected %d leases of kind %s, found %d", p,
                                expected.count(page, kind), name(kind).data(),
                                pool.leases().count(page, kind)));
      }
    }
    const PageState state = pool.entry(page).state;
    const bool is_live =
        state == PageState::reserved || state == PageState::filling || state == PageState::sealed;
    if (is_live != (pool.leases().holders(page) > 0)) {
      wrong->push_back(format("page %d: %s with %d holders", p, name(state).data(),
                              pool.leases().holders(page)));
    }
    if (state == PageState::draining && pool.leases().total(page) == 0) {
      wrong->push_back(format("page %d: draining with no lease left", p));
    }
  }
}

void audit_index(const PagePool& pool, const PrefixIndex& index, Findings* wrong) {
  int32_t found = 0;
  for (int32_t p = 1; p <= pool.total(); ++p) {
    const PageId page{p};
    if (!index.contains(page)) continue;
    ++found;
    const PageEntry& entry = pool.entry(page);
    if (entry.tag != index.tag_of(page) || entry.state != PageState::sealed) {
      wrong->push_back(format("page %d: indexed with tag %" PRIx64 ", found %" PRIx64 ", %s", p,
                              index.tag_of(page), entry.tag, name(entry.state).data()));
    }
    if (entry.identity != index.identity_of(page)) {
      wrong->push_back(format("page %d: indexed by an identity that is not its own", p));
    }
  }
  if (found != index.size()) {
    wrong->push_back(format("prefix index: expected %d pages, found %d", index.size(), found));
  }
}

}  // namespace

std::vector<KnownLease> surplus_leases(const PagePool& pool, const PrefixIndex& index,
                                       std::span<const KnownLease> known) {
  LeaseTable expected(static_cast<int32_t>(pool.directory().size()));
  for (const KnownLease& lease : known) {
    // A lease of another life is not one of this page.
    const bool is_page = lease.page.page.value > 0 && lease.page.page.value <= pool.total();
    if (is_page && pool.entry(lease.page.page).tag == lease.page.tag) {
      expected.take(lease.page.page, lease.kind);
    }
  }
  std::vector<KnownLease> surplus;
  for (int32_t p = 1; p <= pool.total(); ++p) {
    const PageId page{p};
    const PageTag tag = pool.entry(page).tag;
    if (index.tag_of(page) == tag) expected.take(page, LeaseKind::index);
    for (size_t k = 0; k < kLeaseKinds; ++k) {
      const auto kind = static_cast<LeaseKind>(k);
      const int32_t more = pool.leases().count(page, kind) - expected.count(page, kind);
      for (int32_t i = 0; i < more; ++i) surplus.push_back({{page, tag}, kind});
    }
  }
  return surplus;
}

std::vector<std::string> audit_pages(const PagePool& pool, const PrefixIndex& index,
                                     std::span<const KnownLease> known) {
  Findings wrong;
  audit_partition(pool, &wrong);
  audit_free_list(pool, &wrong);
  audit_leases(pool, index, known, &wrong);
  audit_index(pool, index, &wrong);
  const PageEntry& null = pool.entry(kNullPage);
  if (null.tag != kNoTag || null.state != PageState::quarantined ||
      pool.leases().total(kNullPage) != 0) {
    wrong.push_back("null page: it was touched");
  }
  return wrong;
}

}  // namespace quire
