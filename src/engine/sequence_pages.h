// SequencePages: what happens to pages on behalf of sequences. Owns pool, index and page table.
//
// Matches prefixes, allocates (evicting cached pages), commits, publishes and releases. A call that
// the pool refuses is a fault of ours: it is an event of the integrity log, and answered with the
// Status that ends the request concerned. Used by the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/integrity_log.h"
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
  // `findings` outlives this.
  SequencePages(const EngineConfig& config, IntegrityLog& findings);

  void set_integrity(const IntegrityConfig& integrity) { integrity_ = integrity; }
  // How much of the sequence the prefix index has now. Never all of it: the last token is computed
  // even when every page is here. Nothing of a prompt whose log-probabilities are still to be told.
  PrefixMatch peek(Sequence& sequence);
  // Gives the sequence its slot and the pages that the index has. With `seals` on they are verified
  // first, in one ticket: from the first damaged one on they are let go. Returns the damaged page,
  // which is quarantined, or kNoPage.
  PageId attach(Sequence& sequence, SlotId slot, Executor& executor);
  // Allocates `n` more pages, evicting cached ones. Errors: resource_exhausted; corruption.
  Status grow(Sequence& sequence, int32_t n);
  // Whether the sequence's row of the page table is what it was: the page at each sealed place
  // carries the identity of these tokens, the others belong to this request. Errors: corruption.
  Status check_places(const Sequence& sequence) const;
  // Whether the sequence's row still begins with the pages that a step was planned with.
  bool holds(const Sequence& sequence, std::span<const TaggedPage> planned) const;
  // The pages whose tag or state has changed since this was asked last.
  std::span<const PageId> take_changed() { return pool_.take_changed(); }
  // The pages that `grow` has allocated since this was asked last.
  std::span<const PageId> take_fresh();
  // Verifies up to `n` sealed pages, in turn, and quarantines the damaged ones: those.
  std::vector<PageId> scrub(int32_t n, Executor& executor);
  // The same of every sealed page that these sequences hold.
  std::vector<PageId> verify(std::span<Sequence* const> sequences, Executor& executor);
  // Takes back leases that are not among `known`. How many.
  enum class Surplus : uint8_t { to_free, to_quarantine };
  int32_t take_back_surplus(std::span<const KnownLease> known, Surplus where);
  // Empties the sequence's row of the page table without letting its pages go: what a row says that
  // cannot be trusted may be somebody else's. Its leases are surplus then.
  void abandon(const Sequence& sequence) { table_.clear(*sequence.slot); }
  // Drops the entries of the index that do not describe their page any more, and what is wrong on
  // the free list.
  void mend() {
    index_.forget_stale();
    note_stale_entries();
    static_cast<void>(pool_.mend_free_list());
  }
  // The sequence's keys reach to `computed` now. Errors: corruption.
  Status commit(Sequence& sequence);
  // Seals the pages that have become full, and publishes them. One ticket for all sequences.
  void seal_full(std::span<Sequence* const> sequences, Executor& executor);
  // Lets all pages go; the sequence has no slot and nothing computed afterwards.
  void release(Sequence& sequence);
  // Takes what this sequence computed out of the prefix index: it may hold bad values.
  void unpublish(const Sequence& sequence);
  // Takes a page out of circulation and out of the index; `why` is for the log.
  void quarantine(PageId page, std::string_view why);
  // An operator gives a page back that has reached quarantine. Errors: corruption.
  Status release_quarantined(PageId page);

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

 private:
  friend class sim::PageSurgeon;

  // A page whose content is to be compared with its seal.
  struct Sealed {
    std::vector<SealTarget> targets;
    std::vector<PageSeal> seals;
    void add(const PagePool& pool, PageId page, int32_t logical);
  };
  // Of each page of `sealed`, whether it is what was sealed.
  std::vector<PageVerdict> verdicts_of(const Sealed& sealed, Executor& executor);
  // Quarantines those of `sealed` that are not: which.
  std::vector<PageId> condemn_damaged(const Sealed& sealed, Executor& executor);
  void condemn(PageId page);
  void let_go_from(Sequence& sequence, int32_t first);
  // Puts a page that was sealed as the sequence's `logical`-th into the index.
  void publish(Sequence& sequence, TaggedPage page, int32_t logical);
  // Reports what the pool refused, and passes it on.
  Status note(Status status);
  // Reports the entries that the index has found stale or foreign since this was called last.
  void note_stale_entries();
  std::span<const Token> page_tokens(const Sequence& sequence, int32_t logical) const;
  void extend_identities(Sequence& sequence, int32_t n_pages) const;
  int32_t matchable_pages(const Sequence& sequence) const;

  const bool prefix_cache_;
  IntegrityConfig integrity_;
  IntegrityLog& findings_;
  PagePool pool_;
  PrefixIndex index_;
  PageTable table_;
  uint64_t evicted_ = 0;
  uint64_t stale_noted_ = 0;
  uint64_t foreign_noted_ = 0;
  std::vector<int32_t> logical_;  // [n_pages] the place that a sealed page was sealed at
  std::vector<PageId> fresh_;     // allocated since `take_fresh`, when pages are poisoned
  std::vector<PageId> given_;     // what it answered last
  int32_t scrubbed_ = 0;          // the page that was verified last
};

}  // namespace quire
