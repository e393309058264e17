// What the engine does about the integrity of pages: the audit, the scrub, and who is stopped.
#include <algorithm>

#include "base/text.h"
#include "engine/engine_state.h"
#include "engine/failure.h"

namespace quire {

Failure Engine::State::found(IntegrityCheck check, std::string what) {
  counters.integrity_found.add(check);
  return integrity_failure(std::move(what));
}

void Engine::State::fail_holders(PageId page) {
  std::vector<Sequence*> holders;
  for (Sequence* sequence : running) {
    const std::span<const TaggedPage> row = pages.pages(*sequence);
    if (std::ranges::find(row, page, &TaggedPage::page) != row.end()) holders.push_back(sequence);
  }
  for (Sequence* holder : holders) {
    fail(*holder, integrity_failure(format("page %d of the request was damaged", page.value)));
  }
}

void Engine::State::look_after() {
  const IntegrityConfig& integrity = config.integrity;
  if (integrity.scrub_pages > 0) scrub(integrity.scrub_pages);
  if (integrity.audit_steps == 0 || last_step % static_cast<uint64_t>(integrity.audit_steps) != 0) {
    return;
  }
  check_all();
}

void Engine::State::scrub(int32_t n_pages) {
  for (const PageId page : pages.scrub(n_pages, executor)) fail_holders(page);
}

void Engine::State::check_all() {
  const Status status = audit();
  if (status.ok()) return;
  counters.integrity_found.add(IntegrityCheck::audit);
  log.error("kv integrity: " + status.error().message);
  pages.mend();
  pages.take_back_surplus(known_leases(), SequencePages::Surplus::to_quarantine);
}

void Engine::State::fail_untrusted(Sequence& sequence, Failure failure) {
  pages.abandon(sequence);
  fail(sequence, std::move(failure));
  pages.take_back_surplus(known_leases(), SequencePages::Surplus::to_free);
}

void Engine::State::note_late(const StepRow& row, const StepRowResult& result) {
  // The page of an ended request drains until its steps are done: had it begun another life, the
  // step's lease did not hold it.
  const auto page = std::ranges::find(row.pages, result.page, &TaggedPage::page);
  if (page == row.pages.end() || page->tag == result.found_tag) return;
  if (const auto check = check_of(result.verdict)) counters.integrity_found.add(*check);
}

std::vector<KnownLease> Engine::State::known_leases() const {
  std::vector<KnownLease> known;
  for (const Sequence* sequence : running) {
    for (const TaggedPage& page : pages.pages(*sequence)) {
      known.push_back({page, LeaseKind::request});
    }
  }
  for (const InFlight& step : in_flight) {
    for (const StepRow& row : step.plan.rows) {
      for (const TaggedPage& page : row.pages) known.push_back({page, LeaseKind::step});
    }
  }
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
