// PagePool: the page directory, its state machine, and the free list. Knows no bytes of a page.
//
// docs/formats/page_tag.md is the contract. Every call that names a page names the life it means,
// as (page, tag); a call that does not fit the page's state is refused with `corruption`, changes
// nothing, and is for the caller to report: such faults are bugs of ours, and yet the process holds
// other people's requests. Page 0 is the null page: never given out, every call on it refused.
// Used by one thread. All memory is allocated by the constructor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/page_directory.h"
#include "kv/lease.h"

namespace quire {

namespace sim {
class PageSurgeon;  // src/sim: looks at and disturbs what is private, on purpose
}

inline constexpr PageId kNullPage{0};
inline constexpr size_t kPageStates = 6;

std::string_view name(PageState state);

class PagePool {
 public:
  // `n_pages` >= 2: the null page and at least one more.
  PagePool(int32_t n_pages, int32_t page_tokens);

  // A page of a new life, reserved for `owner`, who holds a request lease on it.
  // Errors: resource_exhausted.
  Result<TaggedPage> allocate(RequestId owner);

  // The first `committed` rows are valid now. Reserved or filling pages; only grows.
  Status commit(TaggedPage page, int32_t committed);

  // A full page becomes immutable and may be shared.
  Status seal(TaggedPage page, const PageSeal& seal, const PageIdentity& identity);

  // One more lease. The index, and a second request, may lease sealed pages only.
  Status take(TaggedPage page, LeaseKind kind);

  // The last holder to drop its lease drains the page; the last lease of all frees it.
  Status drop(TaggedPage page, LeaseKind kind);

  // Takes a page out of circulation. At once when it is free; else when its last lease drops, so
  // that those who hold its present life with the right tag finish undisturbed.
  Status quarantine(PageId page);
  // An operator, or a proof that nothing can touch the page any more, gives it back.
  Status release_quarantined(PageId page);

  // Makes the free list the free pages again, each once. False when it was not.
  bool mend_free_list();

  std::span<const PageEntry> directory() const { return entries_; }
  // The pages whose tag or state has changed since this was asked last, each once: what a mirror of
  // the directory has to learn. Good until it is asked again.
  std::span<const PageId> take_changed();
  // CHECKs that `page` is in the pool.
  const PageEntry& entry(PageId page) const;
  const LeaseTable& leases() const { return leases_; }
  bool is_condemned(PageId page) const;

  int32_t page_tokens() const { return page_tokens_; }
  int32_t total() const { return static_cast<int32_t>(entries_.size()) - 1; }
  int32_t count(PageState state) const { return counts_[static_cast<size_t>(state)]; }
  int32_t n_free() const { return count(PageState::free); }
  // Sealed pages that only the prefix index holds.
  int32_t n_cached() const { return n_cached_; }
  std::span<const PageId> free_list() const { return free_; }

 private:
  friend class sim::PageSurgeon;

  // The entry, when `page` is in the pool and lives the life that `page.tag` names; else null.
  PageEntry* find(TaggedPage page) {
    if (page.page.value <= 0 || static_cast<size_t>(page.page.value) >= entries_.size()) {
      return nullptr;
    }
    PageEntry& entry = entries_[static_cast<size_t>(page.page.value)];
    return entry.tag == page.tag ? &entry : nullptr;
  }
  // Why find gave null.
  Error not_found_error(TaggedPage page, std::string_view verb) const;
  // Every change of a tag or a state comes with one.
  void move(PageEntry& entry, PageState to);
  void retire(PageId page);

  const int32_t page_tokens_;
  std::vector<PageEntry> entries_;  // [n_pages]
  LeaseTable leases_;
  std::vector<uint8_t> condemned_;   // [n_pages] 1: quarantined instead of freed
  std::vector<PageId> free_;         // the last is given out first: its memory is warm
  std::vector<PageId> changed_;      // since `take_changed`
  std::vector<PageId> given_;        // what it answered last
  std::vector<uint8_t> is_changed_;  // [n_pages] 1: among `changed_`
  std::array<int32_t, kPageStates> counts_{};
  int32_t n_cached_ = 0;
  PageTag next_tag_ = 1;
};

}  // namespace quire
