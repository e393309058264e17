// SequencePages: what happens to pages on behalf of sequences. Owns pool, index and page table.
//
// Matches prefixes, allocates (evicting cached pages), commits, publishes and releases. A call that
// the pool refuses is a fault of ours: it is logged, counted, and answered with the Status that
// ends the request concerned. Used by the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/sequence.h"
#include "kv/audit.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"
#include "kv/prefix_index.h"

namespace quire {

namespace sim {
class PageSurgeon;  // src/sim: looks at and disturbs what is private, on purpose
}

class SequencePages {
 public:
  // `log` outlives this.
  SequencePages(const EngineConfig& config, Log& log);

  // How much of the sequence the prefix index has now. Never all of it: the last token is computed
  // even when every page is here.
  PrefixMatch peek(Sequence& sequence);
  // Gives the sequence its slot and the pages that the index has.
  void attach(Sequence& sequence, SlotId slot);
  // Allocates `n` more pages, evicting cached ones. Errors: resource_exhausted; corruption.
  Status grow(Sequence& sequence, int32_t n);
  // The sequence's keys reach to `computed` now. Errors: corruption.
  Status commit(Sequence& sequence);
  // Seals the pages that have become full, and publishes them. One ticket for all sequences.
  void seal_full(std::span<Sequence* const> sequences, Executor& executor);
  // Lets all pages go; the sequence has no slot and nothing computed afterwards.
  void release(Sequence& sequence);
  // Takes what this sequence computed out of the prefix index: it may hold bad values.
  void unpublish(const Sequence& sequence);
  // Takes a page out of circulation and out of the index.
  void quarantine(PageId page);

  // For the time that a ticket is open. `take` leases all or none. Errors: corruption.
  Status take(std::span<const TaggedPage> pages, LeaseKind kind);
  void drop(std::span<const TaggedPage> pages, LeaseKind kind);

  std::span<const TaggedPage> pages(const Sequence& sequence) const;
  const PagePool& pool() const { return pool_; }
  int32_t available() const { return pool_.n_free() + pool_.n_cached(); }
  PageIdentity root(const TenantSalt& tenant) const { return index_.root(tenant); }
  // Forgets every page that no request holds.
  void flush();
  Status audit(std::span<const KnownLease> known) const;

  uint64_t evicted() const { return evicted_; }
  uint64_t faults() const { return faults_; }

 private:
  friend class sim::PageSurgeon;

  // Logs and counts what the pool refused, and passes it on.
  Status note(Status status);
  std::span<const Token> page_tokens(const Sequence& sequence, int32_t logical) const;
  void extend_identities(Sequence& sequence, int32_t n_pages) const;
  int32_t matchable_pages(const Sequence& sequence) const;

  const bool prefix_cache_;
  Log& log_;
  PagePool pool_;
  PrefixIndex index_;
  PageTable table_;
  uint64_t evicted_ = 0;
  uint64_t faults_ = 0;
};

}  // namespace quire
