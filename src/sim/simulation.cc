#include "sim/simulation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/engine_desk.h"
#include "engine/sim_executor.h"
#include "sim/buggify.h"
#include "sim/event_heap.h"
#include "sim/fault_injector.h"
#include "sim/front_door.h"
#include "sim/page_checks.h"
#include "sim/page_surgeon.h"
#include "sim/request_record.h"
#include "sim/watching_executor.h"
#include "sim/workload.h"

namespace quire::sim {

namespace {

// A run that needs more is stuck: the longest of a million seeds had a tenth of it.
constexpr uint64_t kEventsMax = 100'000;
constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kLate = 50;  // times as long as usual

class Run {
 public:
  Run(const Case& wanted, const ServedText& text);
  Report go();

 private:
  // Outputs of one request, on their way to its record.
  class Sink final : public OutputSink {
   public:
    Sink(Run& run, size_t record) : run_(run), record_(record) {}
    void on_output(RequestOutput output) override { run_.receive(record_, std::move(output)); }

   private:
    Run& run_;
    const size_t record_;
  };

  bool has(Feature feature) const { return work_.features.has(feature); }
  void wrong(std::string what) {
    if (report_.violation.empty()) report_.violation = std::move(what);
  }
  void note(uint64_t value) { report_.hash = mix64(report_.hash ^ value); }
  int64_t after(int64_t most_us) {
    return clock_.now_us() + 1 +
           static_cast<int64_t>(rng_.next_below(static_cast<uint64_t>(most_us)));
  }

  // The executor that the engine is to have, below what watches it.
  Executor& with_fault(const Case& wanted) {
    if (!wanted.fault) return cells_;
    return injector_.emplace(cells_, wanted.fault->fault, wanted.seed);
  }
  Engine& engine() { return desk_.engine(); }
  bool is_damaged() const { return injector_ && injector_->is_planted(); }
  void plan_arrivals(const Case& wanted);
  void plan_interference();
  void happen(const Event& event);
  void arrive(uint64_t number);
  void leave_by_event(uint64_t number, EventKind why);
  void leave(RequestRecord& record);
  void leave_any();
  void turn();
  void before_turn();
  void ask_before_turn();
  void after_turn();
  void device();
  void deliver();
  void disturb();
  void quarantine();
  void release(uint64_t page);
  void wake_engine();
  void wake_device();
  void wake_front();
  void receive(size_t record, RequestOutput output);
  void check();
  void watch_fault();
  void finish();
  void finish_clients();
  void finish_fault();

  Rng rng_;  // for what happens between requests; requests have streams of their own
  const Workload work_;
  Buggify rare_;
  EventHeap heap_;
  bool turn_is_due_ = false;
  bool device_is_due_ = false;
  bool front_is_due_ = false;
  Log log_;
  ManualClock clock_;
  Report report_;
  std::vector<RequestRecord> records_;  // of the requests that were taken; by id - 1 (see arrive)
  std::vector<uint64_t> record_of_;     // by request number: its place in `records_`, plus 1
  SimExecutor cells_;
  std::optional<FaultInjector> injector_;
  const uint64_t plants_at_;  // the event from which on the fault is to be planted
  WatchingExecutor executor_;
  std::vector<RequestId> leaving_;  // whose aborts the next turn carries out
  std::optional<FrontDoor> front_;
  EngineDesk desk_;  // before what looks into its engine; its end aborts what is left
  PageSurgeon surgeon_;
  PageChecks checks_;
};

Run::Run(const Case& wanted, const ServedText& text)
    : rng_(mix64(wanted.seed ^ 0x72756eULL)),  // "run": a stream of its own
      work_(draw_workload(wanted)),
      rare_(has(Feature::rare_points) ? Buggify(wanted.seed) : Buggify::none()),
      heap_(rng_.next_u64()),
      log_(LogLevel::silent, LogFormat::text),
      record_of_(work_.requests.size(), 0),
      cells_(work_.model, executor_limits(work_.engine),
             [this](RequestId id) { return records_[id.value - 1].planned().salt; },
             has(Feature::late_device) || has(Feature::overlap) ? SimCompletion::when_asked
                                                                : SimCompletion::at_once,
             {.rows = work_.engine.integrity.tags,
              .writes = work_.engine.integrity.writes,
              .poison = work_.engine.integrity.poison}),
      plants_at_(5 + mix64(wanted.seed) % 150),
      executor_(with_fault(wanted), executor_limits(work_.engine)),
      desk_(work_.engine, executor_, clock_, log_),
      surgeon_(engine()),
      checks_(surgeon_.pool(), executor_,
              has(Feature::narrow_identities) ? Identities::narrow : Identities::unique) {
  if (has(Feature::sockets)) front_.emplace(text);
  if (has(Feature::narrow_identities)) rare_.note(Point::narrow_identity);
  if (work_.engine.integrity_retries > 0 && wanted.fault) executor_.expect_retries();
  records_.reserve(work_.requests.size());
  executor_.look_at(surgeon_.pool().directory());
  plan_arrivals(wanted);
  plan_interference();
}

void Run::plan_arrivals(const Case& wanted) {
  for (size_t i = 0; i < work_.requests.size(); ++i) {
    if (std::ranges::binary_search(wanted.left_out, static_cast<int32_t>(i))) continue;
    const PlannedRequest& planned = work_.requests[i];
    // With the pages that a fault may cost, what does not fit could fit.
    if (wanted.fault && !planned.fits) continue;
    heap_.push({.at_us = planned.arrives_us, .kind = EventKind::arrive, .subject = i});
    if (planned.aborts_us) {
      heap_.push({.at_us = *planned.aborts_us, .kind = EventKind::abort, .subject = i});
    }
    if (planned.deadline_us) {
      heap_.push({.at_us = *planned.deadline_us, .kind = EventKind::deadline, .subject = i});
    }
  }
}

// A few of each at moments of the time in which requests arrive.
void Run::plan_interference() {
  const int64_t span_us = work_.requests.back().arrives_us + 20 * work_.pace.turn_us;
  const auto plan = [&](EventKind kind, uint64_t most) {
    for (uint64_t left = 1 + rng_.next_below(most); left > 0; --left) {
      heap_.push({.at_us = after(span_us), .kind = kind});
    }
  };
  if (has(Feature::flushes)) plan(EventKind::flush, 4);
  if (has(Feature::clock_jumps)) plan(EventKind::jump, 3);
  if (has(Feature::early_evictions) || has(Feature::shuffled_reuse)) plan(EventKind::disturb, 60);
  if (has(Feature::quarantines)) plan(EventKind::quarantine, 3);
}

Report Run::go() {
  while (!heap_.is_empty() && report_.violation.empty()) {
    const Event event = heap_.pop();
    if (++report_.events > kEventsMax) wrong("requests do not come to an end");
    clock_.advance_us(std::max<int64_t>(0, event.at_us - clock_.now_us()));
    happen(event);
    if (injector_) watch_fault();
    if (!is_damaged()) check();
  }
  finish();
  return report_;
}

void Run::happen(const Event& event) {
  switch (event.kind) {
    case EventKind::arrive:
      return arrive(event.subject);
    case EventKind::abort:
    case EventKind::deadline:
      return leave_by_event(event.subject, event.kind);
    case EventKind::turn:
      return turn();
    case EventKind::device:
      return device();
    case EventKind::flush:
      report_[Reached::flush] += uint64_t{engine().flush_cache()};
      return;
    case EventKind::jump:
      ++report_[Reached::clock_jump];
      clock_.advance_us(kHourUs);
      return;
    case EventKind::disturb:
      return disturb();
    case EventKind::quarantine:
      return quarantine();
    case EventKind::release:
      return release(event.subject);
    case EventKind::deliver:
      return deliver();
  }
}

// Ids are given to requests that were taken, in order: a refused one leaves no gap.
void Run::arrive(uint64_t number) {
  ++report_.requests;
  const PlannedRequest& planned = work_.requests[number];
  const RequestId id{records_.size() + 1};
  records_.emplace_back(id, planned);
  const Result<RequestId> taken =
      desk_.submit(planned.request, std::make_unique<Sink>(*this, id.value - 1));
  if (taken.ok()) {
    if (!planned.fits) wrong("a request that can never fit was taken");
    if (taken.value() != id) wrong("an id was left out");
    record_of_[number] = id.value;
    if (front_ && planned.fits) front_->open(id, planned, mix64(planned.request.sampling.seed));
    wake_engine();
    if (rare_.fires(Point::leave_at_once)) leave(records_.back());
    return;
  }
  records_.pop_back();
  const bool is_full = taken.error().code == ErrorCode::resource_exhausted;
  ++report_[is_full ? Reached::refused_full : Reached::refused_unfit];
  if (is_full != planned.fits) wrong("refused for the wrong reason");
}

void Run::leave_by_event(uint64_t number, EventKind why) {
  if (record_of_[number] == 0) return;
  RequestRecord& record = records_[record_of_[number] - 1];
  if (!record.is_live() || record.has_left()) return;
  report_[Reached::deadline_passed] += uint64_t{why == EventKind::deadline};
  leave(record);
}

void Run::leave(RequestRecord& record) {
  record.leave();
  ++report_[executor_.has_run(record.id()) ? Reached::aborted_running : Reached::aborted_queued];
  if (front_) front_->leave(record.id());
  desk_.abort(record.id());
  if (rare_.fires(Point::leave_twice)) desk_.abort(record.id());
  leaving_.push_back(record.id());
  wake_engine();
}

void Run::leave_any() {
  std::vector<size_t> live;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (records_[i].is_live() && !records_[i].has_left()) live.push_back(i);
  }
  if (!live.empty()) leave(records_[live[rare_.draw(live.size())]]);
}

void Run::turn() {
  turn_is_due_ = false;
  before_turn();
  desk_.turn();
  for (const RequestId id : std::exchange(leaving_, {})) {
    if (records_[id.value - 1].is_live()) wrong("an abort left its request running");
  }
  after_turn();
  if (!desk_.is_idle() || !engine().is_idle() || !leaving_.empty()) wake_engine();
  wake_device();
}

void Run::before_turn() {
  if (rare_.fires(Point::leave_before_turn)) leave_any();
  if (rare_.fires(Point::leave_unknown)) desk_.abort(RequestId{records_.size() + 1000});
  if (rare_.fires(Point::evict_before_turn)) surgeon_.evict_early();
  if (rare_.fires(Point::forget_before_turn)) surgeon_.evict_all();
  const size_t n_free = surgeon_.pool().free_list().size();
  if (n_free > 0 && rare_.fires(Point::reorder_before_turn)) {
    surgeon_.offer_next(rare_.draw(n_free));
  }
  if (rare_.fires(Point::jump_before_turn)) clock_.advance_us(kSecondUs);
  ask_before_turn();
}

// What operators ask is carried out by the turn, between two steps.
void Run::ask_before_turn() {
  if (rare_.fires(Point::report_asked)) {
    desk_.ask([this](Engine& asked) {
      int32_t pages = 0;
      for (const int32_t n : asked.integrity().pages) pages += n;
      if (pages != surgeon_.pool().total()) wrong("an operator's pages are not those of the pool");
    });
  }
  if (rare_.fires(Point::release_refused)) {
    const auto drawn =
        static_cast<int32_t>(rare_.draw(static_cast<uint64_t>(surgeon_.pool().total()) + 2));
    desk_.ask([this, page = PageId{drawn}](Engine& asked) {
      const bool is_in = page.value > 0 && page.value <= surgeon_.pool().total();
      const bool may = is_in && surgeon_.pool().entry(page).state == PageState::quarantined;
      if (!may && asked.release_page(page).ok()) wrong("a page in use was released");
    });
  }
  if (rare_.fires(Point::flush_refused)) {
    desk_.ask([this](Engine& asked) {
      if (asked.stats().running > 0 && asked.flush_cache()) wrong("flushed while requests run");
    });
  }
}

void Run::after_turn() {
  if (rare_.fires(Point::turn_twice)) desk_.turn();
  if (engine().is_idle()) {
    if (!rare_.fires(Point::idle_look)) return;
    clock_.advance_us(11 * kSecondUs);
    desk_.turn();
    return;
  }
  if (rare_.fires(Point::leave_mid_step)) leave_any();
  if (rare_.fires(Point::audit_mid_step)) {
    if (const Status status = engine().audit(); !status.ok()) wrong(status.error().message);
  }
  if (rare_.fires(Point::verify_mid_step)) engine().verify_all();
  if (rare_.fires(Point::rows_at_once)) {
    while (cells_.has_work()) cells_.run_one_row();
  }
}

// The server's side of the seam: nothing of the engine's is touched but its queue.
void Run::deliver() {
  front_is_due_ = false;
  for (const RequestId id : front_->deliver()) {
    records_[id.value - 1].leave();
    desk_.abort(id);
    wake_engine();
  }
}

void Run::wake_front() {
  if (std::exchange(front_is_due_, true)) return;
  int64_t most_us = work_.pace.turn_us;
  if (rare_.fires(Point::outputs_late)) most_us *= kLate;
  if (rare_.fires(Point::outputs_at_once)) most_us = 1;
  heap_.push({.at_us = after(most_us), .kind = EventKind::deliver});
}

void Run::device() {
  device_is_due_ = false;
  if (!cells_.has_work()) return;
  ++report_[Reached::row_in_between];
  cells_.run_one_row();
  wake_device();
}

void Run::wake_engine() {
  if (std::exchange(turn_is_due_, true)) return;
  int64_t most_us = work_.pace.turn_us;
  if (rare_.fires(Point::turn_late)) most_us *= kLate;
  if (rare_.fires(Point::turn_at_once)) most_us = 1;
  heap_.push({.at_us = after(most_us), .kind = EventKind::turn});
}

// Without a late device, a row is carried out when somebody waits for it.
void Run::wake_device() {
  if (!has(Feature::late_device) || !cells_.has_work()) return;
  if (std::exchange(device_is_due_, true)) return;
  const int64_t slower = rare_.fires(Point::row_late) ? kLate : 1;
  heap_.push({.at_us = after(work_.pace.row_us * slower), .kind = EventKind::device});
}

void Run::disturb() {
  ++report_[Reached::disturbance];
  const uint64_t drawn = rng_.next_u64();
  const bool evicts = has(Feature::early_evictions) && (!has(Feature::shuffled_reuse) || drawn % 2);
  if (evicts) return surgeon_.evict_early();
  const size_t n_free = surgeon_.pool().free_list().size();
  if (n_free > 0) surgeon_.offer_next(drawn % n_free);
}

// Whether a page is out of use, or will be when nobody holds it any more.
bool lacks_a_page(const PagePool& pool) {
  for (int32_t p = 1; p <= pool.total(); ++p) {
    if (pool.is_condemned(PageId{p})) return true;
  }
  return pool.count(PageState::quarantined) > 0;
}

// Only while requests cannot starve of it: with fewer pages than it was promised, one that fits
// would be refused.
void Run::quarantine() {
  const PagePool& pool = surgeon_.pool();
  const PageId page{1 + static_cast<int32_t>(rng_.next_below(static_cast<uint64_t>(pool.total())))};
  int64_t needed = 0;
  for (const PlannedRequest& planned : work_.requests) {
    if (!planned.fits) continue;
    const auto n = static_cast<int64_t>(planned.request.prompt.size());
    needed = std::max(needed, (n + planned.request.max_new_tokens) / pool.page_tokens() + 1);
  }
  if (lacks_a_page(pool) || pool.total() - 2 < needed) return;
  ++report_[Reached::quarantine];
  surgeon_.quarantine(page);
  heap_.push({.at_us = after(20 * work_.pace.turn_us),
              .kind = EventKind::release,
              .subject = static_cast<uint64_t>(page.value)});
}

void Run::release(uint64_t page) {
  const PageId id{static_cast<int32_t>(page)};
  if (surgeon_.release(id)) {
    ++report_[Reached::release];
  } else if (surgeon_.pool().is_condemned(id) && !(is_damaged() && engine().is_idle())) {
    // Somebody holds it still.
    heap_.push(
        {.at_us = after(20 * work_.pace.turn_us), .kind = EventKind::release, .subject = page});
  }
}

void Run::receive(size_t record, RequestOutput output) {
  note(output.request.value);
  for (const GeneratedToken& token : output.tokens) note(static_cast<uint64_t>(token.token));
  if (output.finish) note(100 + static_cast<uint64_t>(*output.finish));
  std::string found = records_[record].judge(output);
  if (!found.empty() && !is_damaged()) wrong(std::move(found));
  report_[Reached::answered] += uint64_t{records_[record].end() == RequestEnd::answered};
  if (!front_) return;
  front_->post(records_[record].id(), std::move(output));
  wake_front();
}

void Run::check() {
  if (std::string found = checks_.check_cheap(); !found.empty()) wrong(std::move(found));
  if (!executor_.violation().empty()) wrong(executor_.violation());
  if (report_.events % static_cast<uint64_t>(work_.audit_every) != 0) return;
  ++report_[Reached::whole_audit];
  if (const Status status = engine().audit(); !status.ok()) wrong(status.error().message);
  if (std::string found = checks_.check_content(); !found.empty()) wrong(std::move(found));
}

void Run::watch_fault() {
  FaultOutcome& outcome = report_.fault;
  if (!injector_->is_planted() && report_.events >= plants_at_) {
    injector_->try_plant({surgeon_, records_, [this](RequestId id) {
                            records_[id.value - 1].leave();
                            if (front_) front_->leave(id);
                            engine().abort(id);
                          }});
  }
  if (!injector_->is_planted() || outcome.found_by) return;
  outcome.is_planted = true;
  const IntegrityCounts found = engine().stats().integrity_found;
  for (size_t i = 0; i < kIntegrityChecks && !outcome.found_by; ++i) {
    const auto check = static_cast<IntegrityCheck>(i);
    if (found[check] == 0) continue;
    outcome.found_by = check;
    outcome.delay_steps = injector_->steps() - injector_->planted_step();
  }
  // Equal hashes are no fault of ours: the comparison that refuses them counts them.
  const bool was_refused = injector_->fault() == Fault::f08 && surgeon_.index().collisions() > 0;
  if (was_refused) outcome.found_by = IntegrityCheck::index;
}

// What is left of the damage is looked for; then all pages have come back, or are in quarantine.
void Run::finish_fault() {
  if (!engine().is_idle()) wrong("requests were lost");
  engine().verify_all();
  watch_fault();
  engine().flush_cache();
  engine().verify_all();
  if (const Status status = engine().audit(); !status.ok()) wrong(status.error().message);
  const EngineStats stats = engine().stats();
  if (stats.pages_free + stats.pages_quarantined != stats.pages_total) {
    wrong("pages did not come back");
  }
  FaultOutcome& outcome = report_.fault;
  outcome.is_gone = outcome.is_planted && !outcome.found_by;
  for (const RequestRecord& record : records_) {
    if (record.is_live()) wrong("a request never ended");
    outcome.wrong_tokens += record.wrong_tokens();
    if (record.end() != RequestEnd::failed) continue;
    ++(injector_->is_victim(record.id()) ? outcome.victims : outcome.collateral);
  }
  finish_clients();
  note(outcome.wrong_tokens ^ outcome.victims << 20 ^ outcome.delay_steps << 40);
}

// What clients were sent is theirs, whatever was damaged; it is right when nothing was.
void Run::finish_clients() {
  if (!front_) return;
  for (const RequestRecord& record : records_) {
    if (std::string found = front_->judge(record, !is_damaged()); !found.empty()) {
      wrong(std::move(found));
    }
  }
  report_[Reached::answer_told] = front_->events_read();
  report_[Reached::output_late] = front_->late_outputs();
  report_[Reached::ended_by_text] = front_->ended_by_text();
}

void Run::finish() {
  report_.points = rare_.hits();
  report_[Reached::equal_hash] = surgeon_.index().collisions();
  if (is_damaged()) {
    report_.engine_steps = engine().stats().steps;
    return finish_fault();
  }
  const EngineStats stats = engine().stats();
  report_.engine_steps = stats.steps;
  report_.false_alarms = stats.integrity_failed;
  if (report_.violation.empty()) {
    if (!engine().is_idle() || !desk_.is_idle()) wrong("requests were lost");
    for (const RequestRecord& record : records_) {
      if (record.is_live()) wrong("a request never ended");
    }
    finish_clients();
    engine().flush_cache();
    if (engine().stats().pages_free != stats.pages_total) wrong("pages did not come back");
    if (stats.integrity_failed != 0) wrong("a false alarm of the integrity checks");
  }
  for (const uint64_t counter :
       {stats.steps, stats.prompt_tokens, stats.cached_tokens, stats.generation_tokens,
        stats.preemptions, stats.evicted_pages, stats.integrity_checked, report_.events}) {
    note(counter);
  }
  report_[Reached::preemption] = stats.preemptions;
  report_[Reached::eviction] = stats.evicted_pages;
  report_[Reached::cached_token] = stats.cached_tokens;
  report_[Reached::row_ahead] = executor_.rows_ahead();
  for (size_t s = 0; s < kPageStates; ++s) {
    report_.reached[static_cast<size_t>(Reached::page_freed) + s] = checks_.entered()[s];
  }
}

}  // namespace

Report run(const Case& wanted, const ServedText& text) { return Run(wanted, text).go(); }

Report run_twice(const Case& wanted, const ServedText& text) {
  Report first = run(wanted, text);
  const Report second = run(wanted, text);
  if (first.violation.empty() && first.hash != second.hash) {
    first.violation = "the same case gave two different runs";
  }
  return first;
}

}  // namespace quire::sim
