// Leases: who may still touch a page, counted by kind. Not ownership: that is in the directory.
//
// Holders (a request, the prefix index) keep a page's content alive. Users (a step in flight, a
// copy, a transfer) only delay its return to the free list: they may still read or write it after
// the last holder let go. kv/page_pool.h turns counts into states.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace quire {

enum class LeaseKind : uint8_t { request, index, step, copy, transfer };
inline constexpr size_t kLeaseKinds = 5;

std::string_view name(LeaseKind kind);

class LeaseTable {
 public:
  explicit LeaseTable(int32_t n_pages);

  // Inline: every page of every row is leased and let go in every step.
  void take(PageId page, LeaseKind kind) { ++counts(page)[static_cast<size_t>(kind)]; }
  // False, and no change, when there is no such lease.
  bool drop(PageId page, LeaseKind kind) {
    int32_t& count = counts(page)[static_cast<size_t>(kind)];
    if (count == 0) return false;
    --count;
    return true;
  }

  int32_t count(PageId page, LeaseKind kind) const {
    return counts(page)[static_cast<size_t>(kind)];
  }
  int32_t holders(PageId page) const {
    return count(page, LeaseKind::request) + count(page, LeaseKind::index);
  }
  int32_t total(PageId page) const {
    const Counts& c = counts(page);
    return c[0] + c[1] + c[2] + c[3] + c[4];
  }
  // The prefix index is the only one left: the page can be had back at once.
  bool is_held_by_index_alone(PageId page) const {
    return count(page, LeaseKind::index) == 1 && total(page) == 1;
  }

 private:
  using Counts = std::array<int32_t, kLeaseKinds>;
  const Counts& counts(PageId page) const {
    CHECK(page.value >= 0 && static_cast<size_t>(page.value) < counts_.size());
    return counts_[static_cast<size_t>(page.value)];
  }
  Counts& counts(PageId page) {
    CHECK(page.value >= 0 && static_cast<size_t>(page.value) < counts_.size());
    return counts_[static_cast<size_t>(page.value)];
  }

  std::vector<Counts> counts_;  // [n_pages]
};

}  // namespace quire
