// Engine::State: what an engine owns, and the parts of its step. Private to engine*.cc.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/failure.h"
#include "engine/integrity_log.h"
#include "engine/rate_meter.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/sequence_pages.h"

namespace quire {

struct Engine::State {
  // A step that was submitted and not collected. Its pages carry step leases.
  struct InFlight {
    TicketId ticket;
    StepPlan plan;
  };

  State(const EngineConfig& engine_config, Executor& step_executor, const Clock& engine_clock,
        Log& engine_log);

  Status add(RequestId id, GenerateRequest request, std::unique_ptr<OutputSink> sink);
  void abort(RequestId id);
  bool step();
  EngineStats stats() const;
  Status audit() const;
  IntegrityReport integrity() const;

  // Planning.
  Schedule schedule();
  void preempt(Sequence& sequence);
  void admit(Sequence& sequence);
  // Stops every request that holds a page whose content was found damaged.
  void fail_holders(PageId page);
  // A page was met under another life than a row recorded: those who hold it have every sealed page
  // of theirs verified, before their tokens of this step leave.
  void verify_sharers(PageId page);
  // What is looked at between steps: the scrub, and now and then the audit.
  void look_after();
  // The same while there is nothing to do, by time.
  void look_after_idle();
  void scrub(int32_t n_pages);
  void check_all();
  // Stops a request whose row of the page table cannot be trusted.
  void fail_untrusted(Sequence& sequence, Failure failure);
  // Ends a sequence's time in its slot, and lets its pages go. A row that is not what it was is
  // abandoned, whatever the sequence leaves for: what it names may be somebody else's.
  void leave_slot(Sequence& sequence);
  std::vector<KnownLease> known_leases() const;
  // Reports what a check found about a request: the failure that it ends with.
  Failure found(IntegrityCheck check, std::string what, const Sequence& sequence,
                PageId page = kNoPage);
  // The row, with its pages; false when the request had to be failed or has to wait a step.
  bool prepare(const ScheduledRow& scheduled, StepRow* row);
  void submit(const std::vector<ScheduledRow>& rows);
  void set_checks(const IntegrityConfig& to);

  // Results.
  // Whether the next step can be planned from what the open one will have chosen.
  bool can_plan_ahead() const;
  // Reads open steps, oldest first, until so many are left.
  void collect_until(size_t n_open);
  void complete(InFlight done);
  std::optional<Failure> check_result(Sequence& sequence, const StepRow& row,
                                      const StepRowResult& result);
  std::optional<Failure> check_verdict(Sequence& sequence, const StepRowResult& result);
  // The request of a row, when it goes on with the try that the row belongs to.
  Sequence* find_try(const StepRow& row);
  // A row whose request has ended or begun again: its page must not have changed hands.
  void note_late(const StepRow& row, const StepRowResult& result);
  void take_scores(Sequence& sequence, const StepRow& row, const StepRowResult& result);
  void take_token(Sequence& sequence, const SampledLogprob& sampled);

  // Endings.
  void finish(Sequence& sequence, RequestOutput last);
  // What was sent to the client of a request that fails: tokens of steps that passed every check,
  // or tokens that may have been computed from damaged content.
  enum class Sent : uint8_t { verified, in_doubt };
  // Ends the request, or has it begin again when it may.
  void fail(Sequence& sequence, Failure failure, Sent sent = Sent::verified);
  bool may_retry(const Sequence& sequence, const Failure& failure, Sent sent) const;
  void retry(Sequence& sequence);
  RequestOutput output_of(const Sequence& sequence) const;
  Sequence* find(RequestId id);

  const EngineConfig config;
  IntegrityConfig checks;  // config.integrity, until a bench changes it
  Executor& executor;
  const Clock& clock;
  Log& log;
  IntegrityLog findings;
  SequencePages pages;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> running;  // by arrival, oldest first
  std::deque<Sequence*> waiting;   // the queue; preempted requests at its head
  std::vector<SlotId> free_slots;
  std::deque<InFlight> in_flight;
  std::span<const StepRow> prepared;  // of the step being planned; their pages have step leases
  std::vector<StepPlan> spare_plans;  // of steps that are over, kept for their memory
  std::vector<RunningView> running_views;  // kept between steps for their memory
  std::vector<WaitingView> waiting_views;
  std::vector<PageId> suspects;  // pages that a step met under another life; empty between steps
  Rng nonces;
  uint64_t last_id = 0;
  uint64_t last_step = 0;
  int64_t idle_scrub_us = 0;  // of the clock, when an idle engine scrubbed last
  int64_t idle_audit_us = 0;  // and made the audit
  EngineStats counters;
  RateMeter generated;
};

}  // namespace quire
