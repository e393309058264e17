#include "kv/page_pool.h"

#include <cinttypes>

#include "base/check.h"
#include "base/text.h"

namespace quire {

std::string_view name(PageState state) {
  switch (state) {
    case PageState::free:
      return "free";
    case PageState::reserved:
      return "reserved";
    case PageState::filling:
      return "filling";
    case PageState::sealed:
      return "sealed";
    case PageState::draining:
      return "draining";
    case PageState::quarantined:
      return "quarantined";
  }
  CHECK(false);
  return {};
}

namespace {

Error refuse(std::string_view verb, PageId page, const char* expected, PageState found) {
  return corruption(format("page %d: %.*s: expected %s, found %s", page.value,
                           static_cast<int>(verb.size()), verb.data(), expected,
                           name(found).data()));
}

}  // namespace

PagePool::PagePool(int32_t n_pages, int32_t page_tokens)
    : page_tokens_(page_tokens),
      entries_(static_cast<size_t>(n_pages)),
      leases_(n_pages),
      condemned_(static_cast<size_t>(n_pages), 0),
      is_changed_(static_cast<size_t>(n_pages), 0) {
  CHECK(n_pages >= 2 && page_tokens >= 1);
  // The null page is in no state that a step or an allocation accepts, and has no tag.
  entries_[0].state = PageState::quarantined;
  free_.reserve(static_cast<size_t>(n_pages));
  changed_.reserve(static_cast<size_t>(n_pages));
  given_.reserve(static_cast<size_t>(n_pages));
  for (int32_t page = n_pages - 1; page >= 1; --page) {
    entries_[static_cast<size_t>(page)].tag = next_tag_++;
    free_.push_back(PageId{page});
  }
  counts_[static_cast<size_t>(PageState::free)] = n_pages - 1;
}

const PageEntry& PagePool::entry(PageId page) const {
  CHECK(page.value >= 0 && static_cast<size_t>(page.value) < entries_.size());
  return entries_[static_cast<size_t>(page.value)];
}

bool PagePool::is_condemned(PageId page) const {
  return condemned_[static_cast<size_t>(page.value)] != 0;
}

void PagePool::move(PageEntry& entry, PageState to) {
  --counts_[static_cast<size_t>(entry.state)];
  ++counts_[static_cast<size_t>(to)];
  entry.state = to;
  const auto page = static_cast<size_t>(&entry - entries_.data());
  if (is_changed_[page] != 0) return;
  is_changed_[page] = 1;
  changed_.push_back(PageId{static_cast<int32_t>(page)});
}

std::span<const PageId> PagePool::take_changed() {
  given_.swap(changed_);
  changed_.clear();
  for (const PageId page : given_) is_changed_[static_cast<size_t>(page.value)] = 0;
  return given_;
}

Error PagePool::not_found_error(TaggedPage page, std::string_view verb) const {
  const int verb_size = static_cast<int>(verb.size());
  if (page.page.value <= 0 || static_cast<size_t>(page.page.value) >= entries_.size()) {
    return corruption(format("page %d: %.*s: expected 1 to %d", page.page.value, verb_size,
                             verb.data(), total()));
  }
  return corruption(format("page %d: %.*s: expected tag %" PRIx64 ", found %" PRIx64,
                           page.page.value, verb_size, verb.data(), page.tag,
                           entry(page.page).tag));
}

Result<TaggedPage> PagePool::allocate(RequestId owner) {
  if (free_.empty()) return resource_exhausted("no free page");
  const PageId page = free_.back();
  // Off the list first: a page that should not be on it is met, and refused, only once.
  free_.pop_back();
  PageEntry& entry = entries_[static_cast<size_t>(page.value)];
  if (entry.state != PageState::free || leases_.total(page) != 0) {
    return refuse("allocate", page, "free and without leases", entry.state);
  }
  move(entry, PageState::reserved);
  entry.tag = next_tag_++;
  entry.owner = owner.value;
  leases_.take(page, LeaseKind::request);
  return TaggedPage{.page = page, .tag = entry.tag};
}

Status PagePool::commit(TaggedPage page, int32_t committed) {
  PageEntry* entry = find(page);
  if (entry == nullptr) return not_found_error(page, "commit");
  if (entry->state != PageState::reserved && entry->state != PageState::filling) {
    return refuse("commit", page.page, "reserved or filling", entry->state);
  }
  if (committed < entry->committed || committed > page_tokens_) {
    return corruption(format("page %d: commit: expected %d to %d tokens, found %d", page.page.value,
                             entry->committed, page_tokens_, committed));
  }
  if (entry->state == PageState::reserved) move(*entry, PageState::filling);
  entry->committed = committed;
  return {};
}

Status PagePool::seal(TaggedPage page, const PageSeal& seal, const PageIdentity& identity) {
  PageEntry* entry = find(page);
  if (entry == nullptr) return not_found_error(page, "seal");
  if (entry->state != PageState::filling || entry->committed != page_tokens_) {
    return refuse("seal", page.page, "filling and full", entry->state);
  }
  move(*entry, PageState::sealed);
  entry->owner = 0;
  entry->seal = seal;
  entry->identity = identity;
  return {};
}

Status PagePool::take(TaggedPage page, LeaseKind kind) {
  PageEntry* entry = find(page);
  if (entry == nullptr) return not_found_error(page, "lease");
  const bool shares = kind == LeaseKind::request || kind == LeaseKind::index;
  const bool allowed = shares ? entry->state == PageState::sealed : is_current(*entry, page.tag);
  if (!allowed) {
    return refuse("lease", page.page, shares ? "sealed" : "reserved, filling or sealed",
                  entry->state);
  }
  if (kind == LeaseKind::index && leases_.count(page.page, kind) != 0) {
    return corruption(
        format("page %d: lease: expected no lease of the index, found one", page.page.value));
  }
  n_cached_ -= int{leases_.is_held_by_index_alone(page.page)};
  leases_.take(page.page, kind);
  n_cached_ += int{leases_.is_held_by_index_alone(page.page)};
  return {};
}

Status PagePool::drop(TaggedPage page, LeaseKind kind) {
  PageEntry* entry = find(page);
  if (entry == nullptr) return not_found_error(page, "drop");
  const bool was_cached = leases_.is_held_by_index_alone(page.page);
  if (!leases_.drop(page.page, kind)) {
    return corruption(format("page %d: drop: expected a lease of kind %s, found none",
                             page.page.value, name(kind).data()));
  }
  n_cached_ += int{leases_.is_held_by_index_alone(page.page)} - int{was_cached};
  if (leases_.holders(page.page) == 0 && is_current(*entry, page.tag)) {
    move(*entry, PageState::draining);
  }
  if (leases_.total(page.page) == 0) retire(page.page);
  return {};
}

void PagePool::retire(PageId page) {
  PageEntry& entry = entries_[static_cast<size_t>(page.value)];
  const bool condemned = is_condemned(page);
  move(entry, condemned ? PageState::quarantined : PageState::free);
  // A new tag: a reference from before the free never matches again, not even before reuse.
  entry = PageEntry{.tag = next_tag_++, .state = entry.state};
  if (!condemned) free_.push_back(page);
}

Status PagePool::quarantine(PageId page) {
  if (page.value <= 0 || static_cast<size_t>(page.value) >= entries_.size()) {
    return corruption(format("page %d: quarantine: expected 1 to %d", page.value, total()));
  }
  PageEntry& entry = entries_[static_cast<size_t>(page.value)];
  condemned_[static_cast<size_t>(page.value)] = 1;
  if (entry.state == PageState::free) {
    std::erase(free_, page);
    move(entry, PageState::quarantined);
  }
  return {};
}

Status PagePool::release_quarantined(PageId page) {
  if (page.value <= 0 || static_cast<size_t>(page.value) >= entries_.size()) {
    return corruption(format("page %d: release: expected 1 to %d", page.value, total()));
  }
  PageEntry& entry = entries_[static_cast<size_t>(page.value)];
  if (entry.state != PageState::quarantined) {
    return refuse("release", page, "quarantined", entry.state);
  }
  condemned_[static_cast<size_t>(page.value)] = 0;
  move(entry, PageState::free);
  entry.tag = next_tag_++;
  free_.push_back(page);
  return {};
}

bool PagePool::mend_free_list() {
  std::vector<uint8_t> listed(entries_.size(), 0);
  const size_t n_before = free_.size();
  std::erase_if(free_, [&](PageId page) {
    const auto p = static_cast<size_t>(page.value);
    return entries_[p].state != PageState::free || listed[p]++ != 0;
  });
  bool is_whole = free_.size() == n_before;
  for (int32_t p = 1; p <= total(); ++p) {
    if (entry(PageId{p}).state != PageState::free || listed[static_cast<size_t>(p)] != 0) continue;
    free_.push_back(PageId{p});
    is_whole = false;
  }
  return is_whole;
}

}  // namespace quire
