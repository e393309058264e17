// What the engine does about the integrity of pages: the audit, the scrub, who is stopped, and who
// begins again.
#include <algorithm>

#include "base/text.h"
#include "engine/engine_state.h"
#include "engine/failure.h"

namespace quire {

namespace {

// An idle engine has time: all of a large pool within minutes, and no more than a small share of
// what a device or a memory bus can do.
constexpr int64_t kIdleScrubUs = 100'000;
constexpr int32_t kIdleScrubPages = 8;
constexpr int64_t kIdleAuditUs = 10'000'000;

}  // namespace

Failure Engine::State::found(IntegrityCheck check, std::string what, const Sequence& sequence,
                             PageId page) {
  findings.found(check, what, page, sequence.id);
  return integrity_failure(std::move(what));
}

bool Engine::State::may_retry(const Sequence& sequence, const Failure& failure, Sent sent) const {
  if (failure.kind != FailureKind::integrity) return false;
  if (sequence.retries >= config.integrity_retries) return false;
  // Tokens of steps that passed every check stay as they are, and the answer goes on after them.
  // Those that damaged content may have made cannot be taken back.
  return sent == Sent::verified || !sequence.has_told();
}

// As a preemption does, but nothing that was computed is trusted again.
void Engine::State::retry(Sequence& sequence) {
  findings.add({.kind = IntegrityEventKind::retried,
                .request = sequence.id,
                .what = format("from its prompt and %d tokens sent", sequence.n_generated())});
  ++counters.integrity_retries;
  ++sequence.retries;
  sequence.nonce = nonces.next_u64();
  sequence.next.reset();
  if (!sequence.slot) return;  // it waits already
  leave_slot(sequence);
  waiting.push_front(&sequence);
}

void Engine::State::fail_holders(PageId page) {
  std::vector<Sequence*> holders;
  for (Sequence* sequence : running) {
    const std::span<const TaggedPage> row = pages.pages(*sequence);
    if (std::ranges::find(row, page, &TaggedPage::page) != row.end()) holders.push_back(sequence);
  }
  for (Sequence* holder : holders) {
    fail(*holder, integrity_failure(format("page %d of the request was damaged", page.value)),
         Sent::in_doubt);
  }
}

void Engine::State::verify_sharers(PageId page) {
  std::vector<Sequence*> sharers;
  for (Sequence* sequence : running) {
    const std::span<const TaggedPage> row = pages.pages(*sequence);
    if (std::ranges::find(row, page, &TaggedPage::page) != row.end()) sharers.push_back(sequence);
  }
  for (const PageId damaged : pages.verify(sharers, executor)) fail_holders(damaged);
}

void Engine::State::look_after() {
  if (checks.scrub_pages > 0) scrub(checks.scrub_pages);
  if (checks.audit_steps == 0 || last_step % static_cast<uint64_t>(checks.audit_steps) != 0) {
    return;
  }
  check_all();
}

void Engine::State::look_after_idle() {
  const int64_t now_us = clock.now_us();
  if (checks.scrub_pages > 0 && now_us - idle_scrub_us >= kIdleScrubUs) {
    idle_scrub_us = now_us;
    scrub(kIdleScrubPages);
  }
  if (checks.audit_steps > 0 && now_us - idle_audit_us >= kIdleAuditUs) {
    idle_audit_us = now_us;
    check_all();
  }
}

void Engine::State::scrub(int32_t n_pages) {
  for (const PageId page : pages.scrub(n_pages, executor)) fail_holders(page);
}

void Engine::State::check_all() {
  findings.looked(IntegrityCheck::audit);
  const Status status = audit();
  if (status.ok()) return;
  findings.found(IntegrityCheck::audit, status.error().message);
  pages.mend();
  pages.take_back_surplus(known_leases(), SequencePages::Surplus::to_quarantine);
}

void Engine::State::fail_untrusted(Sequence& sequence, Failure failure) {
  pages.abandon(sequence);
  fail(sequence, std::move(failure));
  pages.take_back_surplus(known_leases(), SequencePages::Surplus::to_free);
}

void Engine::State::leave_slot(Sequence& sequence) {
  bool is_trusted = true;
  if (checks.places) {
    if (const Status status = pages.check_places(sequence); !status.ok()) {
      findings.found(IntegrityCheck::places, status.error().message, kNoPage, sequence.id);
      pages.abandon(sequence);
      is_trusted = false;
    }
  }
  free_slots.push_back(*sequence.slot);
  pages.release(sequence);
  std::erase(running, &sequence);
  if (!is_trusted) pages.take_back_surplus(known_leases(), SequencePages::Surplus::to_free);
}

void Engine::State::note_late(const StepRow& row, const StepRowResult& result) {
  // The page of an ended request drains until its steps are done: had it begun another life, the
  // step's lease did not hold it.
  const auto page = std::ranges::find(row.pages, result.page, &TaggedPage::page);
  if (page == row.pages.end() || page->tag == result.found_tag) return;
  if (const auto check = check_of(result.verdict)) {
    findings.found(*check, "a page of an ended request changed hands in an open step", result.page,
                   row.request);
  }
}

IntegrityReport Engine::State::integrity() const {
  const PagePool& pool = pages.pool();
  IntegrityReport out{.events = findings.last(), .now_us = clock.now_us()};
  for (size_t s = 0; s < kPageStates; ++s) out.pages[s] = pool.count(static_cast<PageState>(s));
  for (int32_t p = 1; p <= pool.total(); ++p) {
    if (!pool.is_condemned(PageId{p})) continue;
    out.quarantined.push_back(
        {.page = PageId{p}, .is_held = pool.entry(PageId{p}).state != PageState::quarantined});
  }
  return out;
}

std::vector<KnownLease> Engine::State::known_leases() const {
  std::vector<KnownLease> known;
  for (const Sequence* sequence : running) {
    for (const TaggedPage& page : pages.pages(*sequence)) {
      known.push_back({page, LeaseKind::request});
    }
  }
  const auto add_rows = [&known](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      for (const TaggedPage& page : row.pages) known.push_back({page, LeaseKind::step});
    }
  };
  for (const InFlight& step : in_flight) add_rows(step.plan.rows);
  add_rows(prepared);
  return known;
}

Status Engine::State::audit() const {
  TRY_OK(pages.audit(known_leases()));
  if (running.size() + waiting.size() != sequences.size() ||
      running.size() + free_slots.size() != static_cast<size_t>(config.running_requests_max)) {
    return corruption(format("audit: %zu running, %zu waiting, %zu free slots, %zu requests",
                             running.size(), waiting.size(), free_slots.size(), sequences.size()));
  }
  return {};
}

}  // namespace quire
