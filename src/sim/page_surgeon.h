// PageSurgeon: the simulation's hands inside an engine's pages.
//
// Pool, index and engine name it as a friend, and nothing outside src/sim has one: what it does to
// them is either allowed to happen at any time and rare (the first part), or damage that the layers
// above must find. Looks at everything.
#pragma once

#include "engine/engine.h"
#include "engine/sequence_pages.h"
#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace quire::sim {

class PageSurgeon {
 public:
  // `engine` outlives this.
  explicit PageSurgeon(Engine& engine) : pages_(engine.pages()) {}

  const PagePool& pool() const { return pages_.pool_; }
  const PrefixIndex& index() const { return pages_.index_; }

  // Evicts the page that would go next, though nobody needs its place.
  void evict_early() { static_cast<void>(pages_.index_.evict_one()); }
  // Moves the free page at `place` of the list to where the next allocation finds it.
  void offer_next(size_t place) {
    std::vector<PageId>& free = pages_.pool_.free_;
    if (place < free.size()) std::swap(free[place], free.back());
  }
  // As an operator may.
  void quarantine(PageId page) { pages_.quarantine(page); }
  bool release(PageId page) { return pages_.pool_.release_quarantined(page).ok(); }

 private:
  SequencePages& pages_;
};

}  // namespace quire::sim
