#include "sim/page_surgeon.h"

#include <algorithm>
#include <utility>

namespace quire::sim {

void PageSurgeon::offer_next(size_t place) {
  std::vector<PageId>& free = pages_.pool_.free_;
  if (place < free.size()) std::swap(free[place], free.back());
}

void PageSurgeon::lose_lease(PageId page) {
  PagePool& pool = pages_.pool_;
  pool.n_cached_ -= int{pool.leases_.is_held_by_index_alone(page)};
  pool.leases_.take(page, LeaseKind::request);
}

void PageSurgeon::free_by_force(PageId page) {
  PagePool& pool = pages_.pool_;
  static_cast<void>(pages_.index_.remove(page));
  // The index's lease may have been the last: then it is free already.
  if (pool.entry(page).state == PageState::free) return;
  for (size_t k = 0; k < kLeaseKinds; ++k) {
    while (pool.leases_.drop(page, static_cast<LeaseKind>(k))) {
    }
  }
  pool.retire(page);
}

void PageSurgeon::evict_behind_index(TaggedPage page) {
  static_cast<void>(pages_.pool_.drop(page, LeaseKind::index));
}

void PageSurgeon::publish_unsealed(TaggedPage page, const PageIdentity& identity,
                                   std::span<const Token> tokens) {
  PrefixIndex& index = pages_.index_;
  index.by_identity_.emplace(identity, page.page);
  PrefixIndex::Node& node = index.nodes_[static_cast<size_t>(page.page.value)];
  node.tag = page.tag;
  node.identity = identity;
  std::ranges::copy(tokens, index.tokens_of(page.page).begin());
  index.link_newest(page.page.value);
  pages_.pool_.leases_.take(page.page, LeaseKind::index);
}

void PageSurgeon::drop_step_leases(TaggedPage page) {
  PagePool& pool = pages_.pool_;
  while (pool.leases_.count(page.page, LeaseKind::step) > 0 &&
         pool.drop(page, LeaseKind::step).ok()) {
  }
}

bool PageSurgeon::take_for(RequestId request, const TenantSalt& tenant) {
  Sequence* const sequence = engine_.sequence_of(request);
  if (sequence == nullptr || sequence->slot || !sequence->identities.empty()) return false;
  sequence->root = pages_.root(tenant);
  return true;
}

void PageSurgeon::write_row(SlotId slot, int32_t place, TaggedPage page) {
  PageTable& table = pages_.table_;
  table.pages_[table.begin(slot) + static_cast<size_t>(place)] = page;
}

}  // namespace quire::sim
