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

#include "base/ids.h"

namespace quire {

enum class LeaseKind : uint8_t { request, index, step, copy, transfer };
inline constexpr size_t kLeaseKinds = 5;

std::string_view name(LeaseKind kind);

class LeaseTable {
 public:
  explicit LeaseTable(int32_t n_pages);

  void take(PageId page, LeaseKind kind);
  // False, and no change, when there is no such lease.
  bool drop(PageId page, LeaseKind kind);

  int32_t count(PageId page, LeaseKind kind) const;
  int32_t holders(PageId page) const;
  int32_t total(PageId page) const;
  // The prefix index is the only one left: the page can be had back at once.
  bool is_held_by_index_alone(PageId page) const;

 private:
  using Counts = std::array<int32_t, kLeaseKinds>;
  const Counts& counts(PageId page) const;

  std::vector<Counts> counts_;  // [n_pages]
};

}  // namespace quire
