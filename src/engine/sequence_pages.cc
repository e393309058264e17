#include "engine/sequence_pages.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "base/text.h"

namespace quire {

SequencePages::SequencePages(const EngineConfig& config, IntegrityLog& findings)
    : prefix_cache_(config.prefix_cache),
      integrity_(config.integrity),
      findings_(findings),
      pool_(config.n_pages, config.page_tokens),
      index_(pool_, config.domain, config.identity_bits),
      table_(config.running_requests_max,
             static_cast<int32_t>(div_up(config.context_tokens, config.page_tokens))),
      logical_(static_cast<size_t>(config.n_pages), 0) {}

Status SequencePages::note(Status status) {
  findings_.looked(IntegrityCheck::ownership);
  if (!status.ok()) findings_.found(IntegrityCheck::ownership, status.error().message);
  return status;
}

void SequencePages::note_stale_entries() {
  for (; stale_noted_ < index_.stale_entries(); ++stale_noted_) {
    findings_.found(IntegrityCheck::index, "an entry of the prefix index outlived its page");
  }
  for (; foreign_noted_ < index_.foreign_entries(); ++foreign_noted_) {
    findings_.found(IntegrityCheck::index, "a key of the prefix index met another tenant's page");
  }
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
  // A retry computes everything itself: what it met before is in doubt.
  const bool may_match = prefix_cache_ && sequence.retries == 0 && !sequence.wants_scores();
  return may_match ? (sequence.n_tokens() - 1) / pool_.page_tokens() : 0;
}

PrefixMatch SequencePages::peek(Sequence& sequence) {
  const int32_t n = matchable_pages(sequence);
  extend_identities(sequence, n);
  return index_.peek(std::span(sequence.identities).first(static_cast<size_t>(n)), sequence.tokens,
                     sequence.request.tenant);
}

PageId SequencePages::attach(Sequence& sequence, SlotId slot, Executor& executor) {
  const int32_t n = matchable_pages(sequence);
  extend_identities(sequence, n);
  sequence.slot = slot;
  table_.clear(slot);
  PrefixLink link{.tenant = sequence.request.tenant};
  for (int32_t k = 0; k < n; ++k) {
    findings_.looked(IntegrityCheck::index);
    const TaggedPage page =
        index_.acquire(sequence.identities[static_cast<size_t>(k)], page_tokens(sequence, k), link);
    if (page.page == kNoPage) break;
    link.before = page;
    table_.append(slot, page);
  }
  note_stale_entries();
  PageId damaged = kNoPage;
  if (integrity_.seals && table_.size(slot) > 0) {
    Sealed matched;
    for (int32_t k = 0; k < table_.size(slot); ++k) {
      matched.add(pool_, table_.row(slot)[static_cast<size_t>(k)].page, k);
    }
    const std::vector<PageVerdict> verdicts = verdicts_of(matched, executor);
    const auto bad = std::ranges::find(verdicts, PageVerdict::mismatch);
    if (bad != verdicts.end()) {
      const auto good = static_cast<int32_t>(bad - verdicts.begin());
      damaged = matched.targets[static_cast<size_t>(good)].page;
      condemn(damaged);
      let_go_from(sequence, good);
    }
  }
  sequence.matched_pages = sequence.sealed_pages = table_.size(slot);
  sequence.published = table_.size(slot) == 0 ? TaggedPage{} : table_.row(slot).back();
  sequence.computed = sequence.planned = sequence.matched_pages * pool_.page_tokens();
  return damaged;
}

void SequencePages::Sealed::add(const PagePool& pool, PageId page, int32_t logical) {
  targets.push_back({.page = page, .logical = logical});
  seals.push_back(pool.entry(page).seal);
}

std::vector<PageVerdict> SequencePages::verdicts_of(const Sealed& sealed, Executor& executor) {
  if (sealed.targets.empty()) return {};
  findings_.looked(IntegrityCheck::seals, sealed.targets.size());
  std::vector<PageVerdict> verdicts =
      executor.collect_verdicts(executor.verify_pages(sealed.targets, sealed.seals));
  CHECK(verdicts.size() == sealed.targets.size());
  return verdicts;
}

std::vector<PageId> SequencePages::condemn_damaged(const Sealed& sealed, Executor& executor) {
  const std::vector<PageVerdict> verdicts = verdicts_of(sealed, executor);
  std::vector<PageId> damaged;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] == PageVerdict::ok) continue;
    damaged.push_back(sealed.targets[i].page);
    condemn(damaged.back());
  }
  return damaged;
}

void SequencePages::condemn(PageId page) {
  findings_.found(IntegrityCheck::seals, "its content is not what was sealed", page);
  quarantine(page, "its content was damaged");
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
  return condemn_damaged(due, executor);
}

std::vector<PageId> SequencePages::verify(std::span<Sequence* const> sequences,
                                          Executor& executor) {
  std::vector<PageId> held;
  for (const Sequence* sequence : sequences) {
    for (const TaggedPage& entry : pages(*sequence)) held.push_back(entry.page);
  }
  std::ranges::sort(held);
  held.erase(std::unique(held.begin(), held.end()), held.end());  // clang 14 has no ranges::unique
  Sealed due;
  for (const PageId page : held) {
    if (pool_.entry(page).state != PageState::sealed) continue;
    due.add(pool_, page, logical_[static_cast<size_t>(page.value)]);
  }
  return condemn_damaged(due, executor);
}

Status SequencePages::check_places(const Sequence& sequence) const {
  const std::span<const TaggedPage> row = pages(sequence);
  findings_.looked(IntegrityCheck::places, row.size());
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
    if (where == Surplus::to_quarantine) {
      quarantine(lease.page.page, format("a %s lease that nobody has", name(lease.kind).data()));
    }
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
    if (prefix_cache_) publish(sequence, full[i].page, k);
  }
  note_stale_entries();
}

void SequencePages::publish(Sequence& sequence, TaggedPage page, int32_t logical) {
  if (!sequence.published) return;
  const PrefixLink link{.before = *sequence.published, .tenant = sequence.request.tenant};
  const TaggedPage known = index_.insert(page, sequence.identities[static_cast<size_t>(logical)],
                                         page_tokens(sequence, logical), link);
  sequence.published.reset();
  if (known.page != kNoPage) sequence.published = known;
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

void SequencePages::quarantine(PageId page, std::string_view why) {
  if (page.value <= 0 || page.value > pool_.total()) return;
  const bool is_new = !pool_.is_condemned(page);
  // Condemned first: the drop of the index's lease may be the last.
  static_cast<void>(note(pool_.quarantine(page)));
  static_cast<void>(note(index_.remove(page)));
  if (!is_new) return;
  findings_.add({.kind = IntegrityEventKind::quarantined, .page = page, .what = std::string(why)});
}

Status SequencePages::release_quarantined(PageId page) {
  if (page.value <= 0 || page.value > pool_.total()) {
    return invalid_argument(format("page %d: expected 1 to %d", page.value, pool_.total()));
  }
  TRY_OK(pool_.release_quarantined(page));
  findings_.add({.kind = IntegrityEventKind::released, .page = page, .what = "by an operator"});
  return {};
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
