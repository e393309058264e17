#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/batch.h"
#include "engine/engine_state.h"
#include "engine/failure.h"
#include "engine/scheduler.h"

namespace quire {

namespace {

// Requests that one step looks at for admission: more than a step's budget can take, in practice,
// and a bound on the cost of looking.
constexpr size_t kAdmissionsMax = 16;

}  // namespace

Engine::State::State(const EngineConfig& engine_config, Executor& step_executor,
                     const Clock& engine_clock, Log& engine_log)
    : config(engine_config),
      checks(engine_config.integrity),
      executor(step_executor),
      clock(engine_clock),
      log(engine_log),
      findings(engine_clock, engine_log),
      pages(engine_config, findings),
      nonces(mix64(engine_config.seed ^ 0x6e6f6e636573ULL)) {  // "nonces": a stream of its own
  CHECK(config.vocab_size > 0 && config.context_tokens > 1 && config.running_requests_max > 0 &&
        config.queued_requests_max >= 0 && config.chunked_prefill_tokens > 0);
  const auto slots = static_cast<size_t>(config.running_requests_max);
  running.reserve(slots);
  running_views.reserve(slots);
  waiting_views.reserve(kAdmissionsMax);
  sequences.reserve(slots + static_cast<size_t>(config.queued_requests_max));
  for (int32_t slot = config.running_requests_max; slot-- > 0;) free_slots.push_back({slot});
  set_checks(checks);
}

void Engine::State::set_checks(const IntegrityConfig& to) {
  collect_until(0);
  checks = to;
  pages.set_integrity(to);
  const StepChecks of_steps = step_checks(to);
  executor.watch_directory(
      of_steps == StepChecks::none ? std::span<const PageEntry>() : pages.pool().directory(),
      of_steps);
}

Sequence* Engine::State::find(RequestId id) {
  const auto found = sequences.find(id);
  return found == sequences.end() ? nullptr : found->second.get();
}

Status Engine::State::add(RequestId id, GenerateRequest request, std::unique_ptr<OutputSink> sink) {
  TRY_OK(check_request(config, request));
  const int32_t requests_max = config.running_requests_max + config.queued_requests_max;
  if (static_cast<int64_t>(sequences.size()) >= requests_max) {
    return resource_exhausted(
        format("%d requests are running or queued, the most there may be", requests_max));
  }
  CHECK(id.value > last_id && sink != nullptr);
  last_id = id.value;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->nonce = nonces.next_u64();
  sequence->n_prompt = static_cast<int32_t>(request.prompt.size());
  sequence->tokens = std::exchange(request.prompt, {});
  sequence->root = pages.root(request.tenant);
  sequence->request = std::move(request);
  sequence->sink = std::move(sink);
  waiting.push_back(sequence.get());
  sequences.emplace(id, std::move(sequence));
  return {};
}

RequestOutput Engine::State::output_of(const Sequence& sequence) const {
  return {.request = sequence.id,
          .prompt_tokens = sequence.n_prompt,
          .cached_tokens = sequence.cached_tokens.value_or(0),
          .completion_tokens = sequence.n_generated()};
}

void Engine::State::finish(Sequence& sequence, RequestOutput last) {
  CHECK(last.finish.has_value());
  switch (*last.finish) {
    case FinishReason::stop:
    case FinishReason::length:
      ++counters.requests_finished;
      break;
    case FinishReason::aborted:
      ++counters.requests_aborted;
      break;
    case FinishReason::failed:
      ++counters.requests_failed;
      break;
  }
  if (sequence.slot) {
    leave_slot(sequence);
  } else {
    std::erase(waiting, &sequence);
  }
  sequence.sink->on_output(std::move(last));
  sequences.erase(RequestId{sequence.id});
}

void Engine::State::fail(Sequence& sequence, Failure failure, Sent sent) {
  // What a failed request computed is in doubt: nobody else gets it.
  if (sequence.slot) pages.unpublish(sequence);
  if (may_retry(sequence, failure, sent)) return retry(sequence);
  if (failure.kind == FailureKind::integrity) {
    findings.add({.kind = IntegrityEventKind::stopped,
                  .request = sequence.id,
                  .what = failure.error.message});
  } else {
    log.error(format("request %llu failed: %s", static_cast<unsigned long long>(sequence.id.value),
                     failure.error.message.c_str()));
  }
  RequestOutput last = output_of(sequence);
  last.finish = FinishReason::failed;
  last.failure = failure.kind;
  last.error = std::move(failure.error);
  finish(sequence, std::move(last));
}

void Engine::State::abort(RequestId id) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return;
  RequestOutput last = output_of(*sequence);
  last.finish = FinishReason::aborted;
  finish(*sequence, std::move(last));
}

Schedule Engine::State::schedule() {
  running_views.clear();
  for (const Sequence* s : running) {
    running_views.push_back({s->id, s->n_tokens_planned(), s->planned,
                             static_cast<int32_t>(pages.pages(*s).size()), s->is_ending()});
  }
  waiting_views.clear();
  const size_t looked_at = std::min({waiting.size(), free_slots.size(), kAdmissionsMax});
  for (size_t i = 0; i < looked_at; ++i) {
    const PrefixMatch match = pages.peek(*waiting[i]);
    waiting_views.push_back({waiting[i]->id, waiting[i]->n_tokens(), match.pages, match.unheld});
  }
  return make_schedule(
      {.running = running_views,
       .waiting = waiting_views,
       .free_slots = static_cast<int32_t>(free_slots.size()),
       .available_pages = pages.available()},
      {.page_tokens = config.page_tokens, .prefill_tokens_max = config.chunked_prefill_tokens});
}

void Engine::State::preempt(Sequence& sequence) {
  CHECK(in_flight.empty());
  ++counters.preemptions;
  leave_slot(sequence);
  waiting.push_front(&sequence);
}

void Engine::State::admit(Sequence& sequence) {
  // The schedule admits from the head, in order.
  CHECK(!waiting.empty() && waiting.front() == &sequence && !free_slots.empty());
  waiting.pop_front();
  const SlotId slot = free_slots.back();
  free_slots.pop_back();
  const PageId damaged = pages.attach(sequence, slot, executor);
  const auto by_arrival = [](const Sequence* a, const Sequence* b) { return a->id < b->id; };
  running.insert(std::upper_bound(running.begin(), running.end(), &sequence, by_arrival),
                 &sequence);
  if (!sequence.cached_tokens) {  // else it was preempted, and counted before
    sequence.cached_tokens = sequence.computed;
    counters.prompt_tokens += static_cast<uint64_t>(sequence.n_prompt);
    counters.cached_tokens += static_cast<uint64_t>(sequence.computed);
  }
  if (damaged != kNoPage) fail_holders(damaged);
}

bool Engine::State::prepare(const ScheduledRow& scheduled, StepRow* row) {
  Sequence* const found_sequence = find(scheduled.request);
  if (found_sequence == nullptr) return false;  // it was stopped since it was scheduled
  Sequence& sequence = *found_sequence;
  if (!sequence.slot) return false;  // or set back
  // Fewer cached pages than the schedule counted on: it is asked again in the next step.
  if (sequence.planned != scheduled.first) return false;
  if (checks.places) {
    if (Status status = pages.check_places(sequence); !status.ok()) {
      fail_untrusted(sequence, found(IntegrityCheck::places, status.error().message, sequence));
      return false;
    }
  }
  if (Status status = pages.grow(sequence, scheduled.new_pages); !status.ok()) {
    // The schedule counted on a page that is not to be had, which is not this request's fault.
    if (status.error().code == ErrorCode::resource_exhausted) return false;
    fail(sequence, {FailureKind::internal, std::move(status).error()});
    return false;
  }
  const std::span<const TaggedPage> held = pages.pages(sequence);
  if (Status status = pages.take(held, LeaseKind::step); !status.ok()) {
    fail(sequence, integrity_failure(status.error().message));
    return false;
  }
  fill_row(sequence, scheduled, held, config.vocab_size, row);
  return true;
}

void Engine::State::submit(const std::vector<ScheduledRow>& rows) {
  InFlight next;
  if (!spare_plans.empty()) {
    next.plan = std::move(spare_plans.back());
    spare_plans.pop_back();
  }
  next.plan.step = last_step + 1;
  next.plan.rows.resize(rows.size());
  size_t n_rows = 0;
  for (const ScheduledRow& scheduled : rows) {
    prepared = std::span(next.plan.rows).first(n_rows);
    if (prepare(scheduled, &next.plan.rows[n_rows])) ++n_rows;
  }
  prepared = {};
  next.plan.rows.resize(n_rows);
  if (n_rows == 0) return;
  findings.begin_step(++last_step);
  // No step that is open can touch them: they were free.
  if (const std::span<const PageId> fresh = pages.take_fresh(); !fresh.empty()) {
    executor.fill_pages(fresh, std::byte{kPoison});
  }
  executor.note_changes(pages.take_changed());
  // A plan that the executor refuses was built wrongly: a mistake of the engine, not of the world.
  Result<TicketId> ticket = executor.submit(next.plan, make_header(next.plan));
  CHECK(ticket.ok());
  next.ticket = ticket.value();
  for (size_t r = 0; r < n_rows; ++r) {
    const StepRow& row = next.plan.rows[r];
    Sequence& sequence = *find(row.request);
    sequence.planned += static_cast<int32_t>(row.tokens.size());
    if (row.n_logits > 0) {
      sequence.next = TokenSource{.ticket = next.ticket, .row = static_cast<int32_t>(r)};
    }
  }
  in_flight.push_back(std::move(next));
}

std::optional<Failure> Engine::State::check_verdict(Sequence& sequence,
                                                    const StepRowResult& result) {
  if (result.verdict == RowVerdict::ok) return std::nullopt;
  Failure failure = to_failure(result);
  if (const auto check = check_of(result.verdict)) {
    findings.found(*check, failure.error.message, result.page, sequence.id);
  }
  if (failure.kind == FailureKind::integrity && result.page != kNoPage) {
    pages.quarantine(result.page, "a row met it under another life");
    suspects.push_back(result.page);
  }
  return failure;
}

std::optional<Failure> Engine::State::check_result(Sequence& sequence, const StepRow& row,
                                                   const StepRowResult& result) {
  // Before the first layer, and again before a token leaves.
  const int32_t expected = checks.tags ? 2 * static_cast<int32_t>(row.pages.size()) : 0;
  counters.integrity_expected += static_cast<uint64_t>(expected);
  findings.looked(IntegrityCheck::tags, static_cast<uint64_t>(result.pages_checked));
  findings.looked(IntegrityCheck::outputs);
  findings.looked(IntegrityCheck::header);
  if (result.request != row.request || result.nonce != row.nonce ||
      result.nonce != sequence.nonce) {
    return found(IntegrityCheck::outputs, "a result came back for another request", sequence);
  }
  if (std::optional<Failure> failure = check_verdict(sequence, result)) return failure;
  findings.looked(IntegrityCheck::coverage);
  if (result.pages_checked < expected) {
    return found(IntegrityCheck::coverage, "the pages of a step were not all compared", sequence);
  }
  const int32_t end = row.first_position + static_cast<int32_t>(row.tokens.size());
  const auto is_target = [](const SampledLogprob& score, Token token) {
    return score.token == token;
  };
  if (result.accepted != end || static_cast<int32_t>(result.tokens.size()) != row.n_logits ||
      !std::ranges::equal(result.scores, row.targets, is_target)) {
    return Failure{FailureKind::internal, corruption("a step's result has the wrong length")};
  }
  for (const SampledLogprob& sampled : result.tokens) {
    findings.looked(IntegrityCheck::numbers);
    if (sampled.token >= 0 && sampled.token < config.vocab_size) continue;
    Failure failure{
        FailureKind::numerical,
        corruption(format("token %d: expected 0 to %d", sampled.token, config.vocab_size - 1))};
    findings.found(IntegrityCheck::numbers, failure.error.message, kNoPage, sequence.id);
    return failure;
  }
  sequence.computed = end;
  if (Status status = pages.commit(sequence); !status.ok()) {
    return integrity_failure(status.error().message);
  }
  return std::nullopt;
}

void Engine::State::take_scores(Sequence& sequence, const StepRow& row,
                                const StepRowResult& result) {
  RequestOutput output = output_of(sequence);
  int32_t position = row.first_position;
  for (const SampledLogprob& score : result.scores) {
    // A prompt that was preempted is computed again, and told once.
    if (++position != sequence.n_scored) continue;
    output.prompt_tokens_scored.push_back(
        {.token = score.token, .logprob = score.logprob, .top = score.top});
    ++sequence.n_scored;
  }
  if (!output.prompt_tokens_scored.empty()) sequence.sink->on_output(std::move(output));
}

void Engine::State::take_token(Sequence& sequence, const SampledLogprob& sampled) {
  sequence.tokens.push_back(sampled.token);
  ++counters.generation_tokens;
  generated.add(clock.now_us(), 1);
  GenerateRequest& request = sequence.request;
  bool grammar_ends = false;
  if (request.grammar) {
    static_cast<void>(request.grammar->advance(sampled.token));
    grammar_ends = request.grammar->finished();
  }
  RequestOutput output = output_of(sequence);
  output.tokens.push_back({.token = sampled.token, .logprob = sampled.logprob, .top = sampled.top});
  const bool stops =
      std::ranges::find(request.stop_tokens, sampled.token) != request.stop_tokens.end();
  if (stops || grammar_ends) {
    output.finish = FinishReason::stop;
  } else if (sequence.n_generated() >= request.max_new_tokens) {
    output.finish = FinishReason::length;
  }
  if (output.finish) {
    finish(sequence, std::move(output));
  } else {
    sequence.sink->on_output(std::move(output));
  }
}

Sequence* Engine::State::find_try(const StepRow& row) {
  Sequence* const sequence = find(row.request);
  return sequence != nullptr && sequence->nonce == row.nonce ? sequence : nullptr;
}

void Engine::State::complete(InFlight done) {
  StepResult result = executor.collect_step(done.ticket);
  CHECK(result.rows.size() == done.plan.rows.size());
  ++counters.steps;
  for (const StepRow& row : done.plan.rows) pages.drop(row.pages, LeaseKind::step);

  std::vector<size_t> good_rows;
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const StepRow& row = done.plan.rows[i];
    Sequence* sequence = find_try(row);
    if (sequence == nullptr) {  // it has ended since, or begun again
      note_late(row, result.rows[i]);
      continue;
    }
    if (sequence->next && sequence->next->ticket == done.ticket) sequence->next.reset();
    if (checks.places && !pages.holds(*sequence, row.pages)) {
      fail_untrusted(*sequence,
                     found(IntegrityCheck::places, "its page table changed in a step", *sequence));
    } else if (std::optional<Failure> failure = check_result(*sequence, row, result.rows[i])) {
      fail(*sequence, *std::move(failure));
    } else {
      good_rows.push_back(i);
    }
  }
  for (const PageId page : std::exchange(suspects, {})) verify_sharers(page);
  std::vector<Sequence*> good;
  std::erase_if(good_rows, [&](size_t i) {
    Sequence* const sequence = find_try(done.plan.rows[i]);
    if (sequence != nullptr) good.push_back(sequence);
    return sequence == nullptr;
  });
  // Before tokens are taken: a request that ends now leaves its full pages to others.
  pages.seal_full(good, executor);
  for (size_t i = 0; i < good.size(); ++i) {
    const StepRowResult& row = result.rows[good_rows[i]];
    take_scores(*good[i], done.plan.rows[good_rows[i]], row);
    if (!row.tokens.empty()) take_token(*good[i], row.tokens.front());
  }
  spare_plans.push_back(std::move(done.plan));
}

bool Engine::State::can_plan_ahead() const {
  // What a grammar allows next depends on the token itself.
  return std::ranges::none_of(
      running, [](const Sequence* s) { return s->next && s->request.grammar.has_value(); });
}

void Engine::State::collect_until(size_t n_open) {
  while (in_flight.size() > n_open) {
    InFlight done = std::move(in_flight.front());
    in_flight.pop_front();
    complete(std::move(done));
  }
}

bool Engine::State::step() {
  if (sequences.empty()) {
    collect_until(0);
    return false;
  }
  if (!can_plan_ahead()) collect_until(0);
  Schedule plan = schedule();
  if ((plan.preempt || plan.refuse) && !in_flight.empty()) {
    collect_until(0);
    plan = schedule();
  }
  // Each preemption takes one request out of `running`: bounded by the slots.
  while (plan.preempt) {
    preempt(*find(*plan.preempt));
    plan = schedule();
  }
  if (plan.refuse) {
    fail(*find(*plan.refuse),
         {FailureKind::internal,
          resource_exhausted("the request needs more KV cache than can be had")});
    return true;
  }
  for (const RequestId id : plan.admit) {
    // Damage that one of them meets may set another back, which is then the first of those who
    // wait: the rest is admitted in the next step.
    if (waiting.front()->id != id) break;
    admit(*waiting.front());
  }
  const uint64_t before = last_step;
  submit(plan.rows);
  // With nothing new to run, or nobody left to run it for, there is nothing to overlap with.
  const bool overlaps = config.overlap == Overlap::on && last_step != before;
  collect_until(overlaps ? 1 : 0);
  if (sequences.empty()) collect_until(0);
  look_after();
  return true;
}

EngineStats Engine::State::stats() const {
  EngineStats stats = counters;
  const PagePool& pool = pages.pool();
  stats.running = static_cast<int32_t>(running.size());
  stats.queued = static_cast<int32_t>(waiting.size());
  stats.pages_total = pool.total();
  stats.pages_free = pool.n_free();
  stats.pages_cached = pool.n_cached();
  stats.pages_quarantined = pool.count(PageState::quarantined);
  stats.pages_used =
      stats.pages_total - stats.pages_free - stats.pages_cached - stats.pages_quarantined;
  stats.evicted_pages = pages.evicted();
  stats.device_allocations = executor.allocations_after_start();
  stats.integrity_looked = findings.looked();
  stats.integrity_checked = stats.integrity_looked[IntegrityCheck::tags];
  stats.integrity_found = findings.found();
  stats.integrity_failed =
      stats.integrity_found.total() - stats.integrity_found[IntegrityCheck::numbers];
  stats.generation_tokens_per_second = generated.per_second_at(clock.now_us());
  return stats;
}

Engine::Engine(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log)
    : state_(std::make_unique<State>(config, executor, clock, log)) {}

Engine::~Engine() {
  abort_all();
  // The executor reads the directory, which ends with this.
  state_->collect_until(0);
}

Result<RequestId> Engine::add(GenerateRequest request, std::unique_ptr<OutputSink> sink) {
  const RequestId id{state_->last_id + 1};
  TRY_OK(state_->add(id, std::move(request), std::move(sink)));
  return id;
}

Status Engine::add_as(RequestId id, GenerateRequest request, std::unique_ptr<OutputSink> sink) {
  return state_->add(id, std::move(request), std::move(sink));
}

void Engine::abort(RequestId request) { state_->abort(request); }

void Engine::abort_all() {
  // By arrival, so that a run is the same each time.
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : state_->sequences) ids.push_back(id);
  std::ranges::sort(ids);
  for (const RequestId id : ids) state_->abort(id);
}

bool Engine::step() { return state_->step(); }
void Engine::look_after_idle() { state_->look_after_idle(); }
IntegrityReport Engine::integrity() const { return state_->integrity(); }
Status Engine::release_page(PageId page) { return state_->pages.release_quarantined(page); }
bool Engine::is_idle() const { return state_->sequences.empty() && state_->in_flight.empty(); }
EngineStats Engine::stats() const { return state_->stats(); }
Status Engine::audit() const { return state_->audit(); }
void Engine::verify_all() {
  state_->scrub(state_->pages.pool().total());
  state_->check_all();
}
void Engine::set_integrity(const IntegrityConfig& integrity) { state_->set_checks(integrity); }
SequencePages& Engine::pages() { return state_->pages; }
Sequence* Engine::sequence_of(RequestId request) { return state_->find(request); }

bool Engine::flush_cache() {
  if (!state_->running.empty()) return false;
  state_->collect_until(0);
  state_->pages.flush();
  return true;
}

}  // namespace quire
