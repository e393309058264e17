// PageSurgeon: the simulation's hands inside an engine's pages.
//
// Pool, index and engine name it as a friend, and nothing outside src/sim has one. What it does to
// them is either allowed to happen at any time and rare (the first part), or damage that the layers
// above must find (the second). Looks at everything.
#pragma once

#include <span>

#include "engine/engine.h"
#include "engine/sequence_pages.h"
#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace quire::sim {

class PageSurgeon {
 public:
  // `engine` outlives this.
  explicit PageSurgeon(Engine& engine) : engine_(engine), pages_(engine.pages()) {}

  const PagePool& pool() const { return pages_.pool_; }
  const PrefixIndex& index() const { return pages_.index_; }
  std::span<const TaggedPage> row(SlotId slot) const { return pages_.table_.row(slot); }

  // Evicts the page that would go next, though nobody needs its place.
  void evict_early() { static_cast<void>(pages_.index_.evict_one()); }
  void evict_all() {
    while (pages_.index_.evict_one()) {
    }
  }
  // Moves the free page at `place` of the list to where the next allocation finds it.
  void offer_next(size_t place);
  // As an operator may.
  void quarantine(PageId page) { pages_.quarantine(page, "by an operator"); }
  bool release(PageId page) { return pages_.pool_.release_quarantined(page).ok(); }

  // A page is put on the free list, whatever it is.
  void list_as_free(PageId page) { pages_.pool_.free_.push_back(page); }
  // A holder's release, made on nobody's behalf.
  void let_go(TaggedPage page) { pages_.drop({&page, 1}, LeaseKind::request); }
  // A lease that nobody will ever drop.
  void lose_lease(PageId page);
  // A page begins another life, and is free, whoever has a lease on it.
  void free_by_force(PageId page);
  // An eviction that forgets the index.
  void evict_behind_index(TaggedPage page);
  // An entry of the index for a page that is not sealed.
  void publish_unsealed(TaggedPage page, const PageIdentity& identity,
                        std::span<const Token> tokens);
  // The leases of open steps on a page are gone.
  void drop_step_leases(TaggedPage page);
  // A request that waits, and has met no page yet, is taken for another tenant's by the index.
  bool take_for(RequestId request, const TenantSalt& tenant);
  // An entry of a row of the page table.
  void write_row(SlotId slot, int32_t place, TaggedPage page);

 private:
  Engine& engine_;
  SequencePages& pages_;
};

}  // namespace quire::sim
