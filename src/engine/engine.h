// Engine: all serving state, owned by one thread that calls step().
//
// Continuous batching over paged KV: admits, plans (engine/scheduler.h, pure), submits the plan to
// the Executor, and turns results into outputs. No I/O: clock, randomness and executor are given.
// docs/engine.md has the concepts, who owns what, and the invariants.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/engine_config.h"
#include "engine/executor.h"
#include "engine/integrity_report.h"
#include "engine/request.h"

namespace quire {

namespace sim {
class PageSurgeon;  // src/sim: looks at and disturbs what is private, on purpose
}
struct Sequence;
class SequencePages;

// Counters and gauges. Counters only grow.
struct EngineStats {
  int32_t running = 0, queued = 0;
  int32_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_used = 0, pages_quarantined = 0;
  uint64_t steps = 0;
  uint64_t requests_finished = 0, requests_aborted = 0, requests_failed = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0;
  uint64_t preemptions = 0, evicted_pages = 0;
  uint64_t integrity_checked = 0, integrity_failed = 0;  // pages of rows compared; findings
  // Comparisons that the rows of all steps ask for: with the check of tags on, what
  // integrity_checked comes to as long as nothing is wrong.
  uint64_t integrity_expected = 0;
  IntegrityCounts integrity_looked;         // comparisons made, by check
  IntegrityCounts integrity_found;          // integrity_failed by check, numbers with them
  uint64_t integrity_retries = 0;           // requests that began again from their prompt
  uint64_t device_allocations = 0;          // after the start; there should be none
  double generation_tokens_per_second = 0;  // over the last second
};

class Engine {
 public:
  // `executor`, `clock` and `log` outlive the engine. The executor was built for
  // executor_limits(config).
  Engine(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Errors: invalid_argument (can never fit), resource_exhausted (queue full). `sink` gets nothing
  // then.
  Result<RequestId> add(GenerateRequest request, std::unique_ptr<OutputSink> sink);
  // The same for a caller that has to know the id beforehand: ids are unique in a run, and later
  // requests have larger ones.
  Status add_as(RequestId id, GenerateRequest request, std::unique_ptr<OutputSink> sink);
  // Its last output, `aborted`, comes before this returns. Unknown ids are ignored.
  void abort(RequestId request);
  void abort_all();

  // One step: true when there was something to do.
  bool step();
  // For whoever finds nothing to do: scrubs and audits now and then, by the clock.
  void look_after_idle();

  bool is_idle() const;
  EngineStats stats() const;
  // Pages, leases and index against each other and against the sequences. Corruption names the
  // first findings.
  Status audit() const;
  // Verifies every sealed page and makes the audit now, and acts on what they find.
  void verify_all();
  // Pages by state, those in quarantine, and what the checks found last.
  IntegrityReport integrity() const;
  // An operator gives a page back that has reached quarantine. Errors: invalid_argument (no such
  // page), corruption (it is not there, or somebody holds it still).
  Status release_page(PageId page);
  // From the next step on, these checks. For benches that compare them in one process: open steps
  // are read first, and steps that the executor has not recorded with such checks are slower.
  void set_integrity(const IntegrityConfig& integrity);
  // Drops the pages that no request holds from the prefix index; false when requests are running.
  bool flush_cache();

 private:
  friend class sim::PageSurgeon;
  SequencePages& pages();
  Sequence* sequence_of(RequestId request);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
