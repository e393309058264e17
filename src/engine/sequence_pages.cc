#include "engine/sequence_pages.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/text.h"

namespace quire {

SequencePages::SequencePages(const EngineConfig& config, Log& log)
    : prefix_cache_(config.prefix_cache),
      integrity_(config.integrity),
      log_(log),
      pool_(config.n_pages, config.page_tokens),
      index_(pool_, config.domain),
      table_(config.running_requests_max,
             static_cast<int32_t>(div_up(config.context_tokens, config.page_tokens))),
      logical_(static_cast<size_t>(config.n_pages), 0) {}

IntegrityCounts SequencePages::found() const {
  IntegrityCounts found = found_;
  found.add(IntegrityCheck::index, index_.stale_entries());
  return found;
}

Status SequencePages::note(Status status) {
  if (!status.ok()) {
    found_.add(IntegrityCheck::ownership);
    log_.error("kv integrity: " + status.error().message);
  }
  return status;
}

std::span<const TaggedPage> SequencePages::pages(const Sequence& sequence) const {
  CHECK(sequence.slot.has_value());
  return table_.row(*sequence.slot);
}

std::span<const Token> SequencePages::page_tokens(const Sequence& sequence, int32_t logical) const {
  const auto n = static_cast<size_t>(pool_.page_tokens());
  return std::span(sequence.tokens).subspan(static_cast<size_t>(logical) * n, n);
}

void SequencePages::extend_identities(Sequence& sequence, int32_t n_pages) const {
  for (auto k = static_cast<int32_t>(sequence.identities.size()); k < n_pages; ++k) {
    const PageIdentity& parent = k == 0 ? sequence.root : sequence.identities.back();
    sequence.identities.push_back(index_.chain(parent, page_tokens(sequence, k)));
  }
}

int32_t SequencePages::matchable_pages(const Sequence& sequence) const {
  return prefix_cache_ ? (sequence.n_tokens() - 1) / pool_.page_tokens() : 0;
}

PrefixMatch SequencePages::peek(Sequence& sequence) {
  const int32_t n = matchable_pages(sequence);
  extend_identities(sequence, n);
  return index_.peek(std::span(sequence.identities).first(static_cast<size_t>(n)), sequence.tokens);
}

PageId SequencePages::attach(Sequence& sequence, SlotId slot, Executor& executor) {
  const int32_t n = matchable_pages(sequence);
  extend_identities(sequence, n);
  sequence.slot = slot;
  table_.clear(slot);
  for (int32_t k = 0; k < n; ++k) {
    const TaggedPage page =
        index_.acquire(sequence.identities[static_cast<size_t>(k)], page_tokens(sequence, k));
    if (page.page == kNoPage) break;
    table_.append(slot, page);
  }
  PageId damaged = kNoPage;
  if (integrity_.seals && table_.size(slot) > 0) {
    Sealed matched;
    for (int32_t k = 0; k < table_.size(slot); ++k) {
      matched.add(pool_, table_.row(slot)[static_cast<size_t>(k)].page, k);
    }
    const size_t good = first_damaged(matched, executor);
    if (good < matched.targets.size()) {
      damaged = matched.targets[good].page;
      condemn_damaged(damaged);
      let_go_from(sequence, static_cast<int32_t>(good));
    }
  }
  sequence.matched_pages = sequence.sealed_pages = table_.size(slot);
  sequence.computed = sequence.planned = sequence.matched_pages * pool_.page_tokens();
  return damaged;
}

void SequencePages::Sealed::add(const PagePool& pool, PageId page, int32_t logical) {
  targets.push_back({.page = page, .logical = logical});
  seals.push_back(pool.entry(page).seal);
}

size_t SequencePages::first_damaged(const Sealed& sealed, Executor& executor) {
  const std::vector<PageVerdict> verdicts =
      executor.collect_verdicts(executor.verify_pages(sealed.targets, sealed.seals));
  CHECK(verdicts.size() == sealed.targets.size());
  const auto first = std::ranges::find(verdicts, PageVerdict::mismatch);
  return static_cast<size_t>(first - verdicts.begin());
}

void SequencePages::condemn_damaged(PageId page) {
  found_.add(IntegrityCheck::seals);
  log_.error(format("kv integrity: page %d: its content is not what was sealed", page.value));
  quarantine(page);
}

void SequencePages::let_go_from(Sequence& sequence, int32_t first) {
  const std::span<const TaggedPage> row = pages(sequence);
  for (size_t k = row.size(); k-- > static_cast<size_t>(first);) {
    index_.touch(row[k].page);
    static_cast<void>(note(pool_.drop(row[k], LeaseKind::request)));
  }
  table_.truncate(*sequence.slot, first);
}

std::vector<PageId> SequencePages::scrub(int32_t n, Executor& executor) {
  Sealed due;
  for (int32_t seen = 0; seen < pool_.total() && static_cast<int32_t>(due.targets.size()) < n;
       ++seen) {
    scrubbed_ = scrubbed_ % pool_.total() + 1;
    const PageId page{scrubbed_};
    const bool is_sealed = pool_.entry(page).state == PageState::sealed;
    if (is_sealed && !pool_.is_condemned(page)) {
      due.add(pool_, page, logical_[static_cast<size_t>(page.value)]);
    }
  }
  std::vector<PageId> damaged;
  while (!due.targets.empty()) {
    const size_t good = first_damaged(due, executor);
    if (good == due.targets.size()) break;
    damaged.push_back(due.targets[good].page);
    condemn_damaged(damaged.back());
    due.targets.erase(due.targets.begin(), due.targets.begin() + static_cast<ptrdiff_t>(good) + 1);
    due.seals.erase(due.seals.begin(), due.seals.begin() + static_cast<ptrdiff_t>(good) + 1);
  }
  return damaged;
}

Status SequencePages::check_places(const Sequence& sequence) const {
  const std::span<const TaggedPage> row = pages(sequence);
  for (size_t k = 0; k < row.size(); ++k) {
    const PageEntry& entry = pool_.entry(row[k].page);
    const bool is_sealed_place = k < static_cast<size_t>(sequence.sealed_pages);
    const bool fits = is_sealed_place ? entry.identity == sequence.identities[k]
                                      : entry.owner == sequence.id.value;
    if (fits) continue;
    return corruption(format("page %d at place %zu: expected %s", row[k].page.value, k,
                             is_sealed_place ? "the page sealed there" : "a page of the request"));
  }
  return {};
}

bool SequencePages::holds(const Sequence& sequence, std::span<const TaggedPage> planned) const {
  const std::span<const TaggedPage> row = pages(sequence);
  return row.size() >= planned.size() && std::ranges::equal(row.first(planned.size()), planned);
}

std::span<const PageId> SequencePages::take_fresh() {
  given_.swap(fresh_);
  fresh_.clear();
  return given_;
}

int32_t SequencePages::take_back_surplus(std::span<const KnownLease> known, Surplus where) {
  const std::vector<KnownLease> surplus = surplus_leases(pool_, index_, known);
  for (const KnownLease& lease : surplus) {
    log_.error(format("kv integrity: page %d: a lease of kind %s that nobody has",
                      lease.page.page.value, name(lease.kind).data()));
    if (where == Surplus::to_quarantine) quarantine(lease.page.page);
    static_cast<void>(pool_.drop(lease.page, lease.kind));
  }
  return static_cast<int32_t>(surplus.size());
}

Status SequencePages::grow(Sequence& sequence, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    while (pool_.n_free() == 0 && index_.evict_one()) ++evicted_;
    Result<TaggedPage> page = pool_.allocate(sequence.id);
    // A page that should not have been on the list is off it now, and the fault is not this
    // request's: the next one is tried, and there are no more than the pool has.
    while (!page.ok() && page.error().code == ErrorCode::corruption) {
      static_cast<void>(note(std::move(page).error()));
      page = pool_.allocate(sequence.id);
    }
    if (!page.ok()) return std::move(page).error();
    table_.append(*sequence.slot, page.value());
    if (integrity_.poison) fresh_.push_back(page.value().page);
  }
  return {};
}

Status SequencePages::commit(Sequence& sequence) {
  const std::span<const TaggedPage> row = pages(sequence);
  for (int32_t k = sequence.sealed_pages; k < static_cast<int32_t>(row.size()); ++k) {
    const int32_t rows = std::min(pool_.page_tokens(), sequence.computed - k * pool_.page_tokens());
    if (rows <= 0) break;
    TRY_OK(note(pool_.commit(row[static_cast<size_t>(k)], rows)));
  }
  return {};
}

void SequencePages::seal_full(std::span<Sequence* const> sequences, Executor& executor) {
  struct Full {
    Sequence* sequence;
    TaggedPage page;
  };
  std::vector<Full> full;
  std::vector<SealTarget> targets;
  for (Sequence* sequence : sequences) {
    const int32_t n = sequence->computed / pool_.page_tokens();
    extend_identities(*sequence, n);
    for (int32_t k = sequence->sealed_pages; k < n; ++k) {
      const TaggedPage page = pages(*sequence)[static_cast<size_t>(k)];
      if (!take({&page, 1}, LeaseKind::copy).ok()) break;
      full.push_back({sequence, page});
      targets.push_back({.page = page.page, .logical = k});
    }
  }
  if (full.empty()) return;
  const std::vector<PageSeal> seals = executor.collect_seals(executor.seal_pages(targets));
  CHECK(seals.size() == full.size());
  for (size_t i = 0; i < full.size(); ++i) {
    Sequence& sequence = *full[i].sequence;
    const int32_t k = targets[i].logical;
    const PageIdentity& identity = sequence.identities[static_cast<size_t>(k)];
    const bool sealed = note(pool_.seal(full[i].page, seals[i], identity)).ok();
    drop({&full[i].page, 1}, LeaseKind::copy);
    // Pages are sealed in order: one that was refused keeps those after it out of the index.
    if (!sealed || sequence.sealed_pages != k) continue;
    ++sequence.sealed_pages;
    logical_[static_cast<size_t>(full[i].page.page.value)] = k;
    if (prefix_cache_) index_.insert(full[i].page, identity, page_tokens(sequence, k));
  }
}

void SequencePages::release(Sequence& sequence) {
  // From the end, so that in the index the beginning of a prefix is the younger.
  let_go_from(sequence, 0);
  sequence.slot.reset();
  sequence.computed = sequence.planned = 0;
  sequence.matched_pages = sequence.sealed_pages = 0;
}

void SequencePages::unpublish(const Sequence& sequence) {
  const std::span<const TaggedPage> row = pages(sequence);
  for (size_t k = static_cast<size_t>(sequence.matched_pages); k < row.size(); ++k) {
    if (index_.tag_of(row[k].page) == row[k].tag) {
      static_cast<void>(note(index_.remove(row[k].page)));
    }
  }
}

void SequencePages::quarantine(PageId page) {
  if (page.value <= 0 || page.value > pool_.total()) return;
  // Condemned first: the drop of the index's lease may be the last.
  static_cast<void>(note(pool_.quarantine(page)));
  static_cast<void>(note(index_.remove(page)));
}

Status SequencePages::take(std::span<const TaggedPage> pages, LeaseKind kind) {
  for (size_t i = 0; i < pages.size(); ++i) {
    if (Status status = note(pool_.take(pages[i], kind)); !status.ok()) {
      drop(pages.first(i), kind);
      return status;
    }
  }
  return {};
}

void SequencePages::drop(std::span<const TaggedPage> pages, LeaseKind kind) {
  for (const TaggedPage& page : pages) static_cast<void>(note(pool_.drop(page, kind)));
}

void SequencePages::flush() {
  while (index_.evict_one()) ++evicted_;
}

Status SequencePages::audit(std::span<const KnownLease> known) const {
  const std::vector<std::string> wrong = audit_pages(pool_, index_, known);
  if (wrong.empty()) return {};
  constexpr size_t kShown = 5;
  std::string message = "audit: " + std::to_string(wrong.size()) + " findings";
  for (size_t i = 0; i < std::min(kShown, wrong.size()); ++i) message += "; " + wrong[i];
  return corruption(std::move(message));
}

}  // namespace quire
