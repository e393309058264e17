#include "engine/runner.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int64_t kOpeningBytes = sizeof(ops::StepOpening);

RowVerdict to_verdict(ops::SampleVerdict verdict) {
  switch (verdict) {
    case ops::SampleVerdict::ok:
      return RowVerdict::ok;
    case ops::SampleVerdict::bad_logits:
      return RowVerdict::bad_logits;
    case ops::SampleVerdict::dead_end:
      return RowVerdict::dead_end;
  }
  CHECK(false);
  return RowVerdict::bad_logits;
}

SampledLogprob to_logprob(const ops::SampledRow& row) {
  SampledLogprob out{.token = row.token, .logprob = row.logprob};
  for (int32_t i = 0; i < row.n_top; ++i) {
    out.top.emplace_back(row.top_tokens[i], row.top_logprobs[i]);
  }
  return out;
}

bool is_genuine(const StepPlan& plan, const StepHeader& header, uint64_t step) {
  const StepHeader expected = make_header(plan);
  return header.step == step && header.step == expected.step && header.n_rows == expected.n_rows &&
         header.nonce_sum == expected.nonce_sum && header.hash == expected.hash;
}

}  // namespace

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::make(Backend& backend, Model& model,
                                                           const PlanLimits& limits,
                                                           const ExecutorOptions& options) {
  CHECK(limits.n_pages >= 2 && limits.rows_max > 0 && limits.tokens_max >= limits.rows_max &&
        limits.pages_max > 0 && limits.page_tokens == model.kv_layout().page_tokens);
  std::unique_ptr<ModelExecutor> executor(new ModelExecutor(backend, model, limits));
  TRY_OK(executor->allocate_all());
  if (options.record == RecordSteps::yes) {
    for (const StepChecks checks : options.checks) executor->record_decodes(checks);
  }
  executor->allocations_at_start_ = backend.memory().allocations();
  return executor;
}

Status ModelExecutor::allocate_all() {
  const int64_t page_bytes = model_.kv_layout().page_bytes;
  pool_ = TRY(allocate(backend_, int64_t{limits_.n_pages} * page_bytes, "KV pool"));
  const int64_t inputs_bytes = step_inputs_bytes_max(limits_);
  const int64_t results_bytes =
      sampled_at() + limits_.tokens_max * int64_t{sizeof(ops::SampledRow)};
  const int64_t kept_bytes = kRecentSteps * limits_.rows_max * int64_t{sizeof(Token)};
  inputs_ = TRY(allocate(backend_, inputs_bytes, "inputs of a step"));
  results_ = TRY(allocate(backend_, results_bytes, "results of a step"));
  kept_ = TRY(allocate(backend_, kept_bytes, "sampled tokens"));
  scored_ = TRY(allocate(backend_, limits_.rows_max * int64_t{sizeof(Token)}, "scored tokens"));
  state_ = TRY(allocate(backend_, ops::kStepStateWords * int64_t{sizeof(uint64_t)}, "step count"));
  lives_ = TRY(
      allocate(backend_, int64_t{limits_.n_pages} * int64_t{sizeof(PageLife)}, "page directory"));
  // No page has a life before a step says so.
  backend_.fill(lives_.data(), lives_.bytes(), std::byte{0});
  backend_.fill(kept_.data(), kept_.bytes(), std::byte{0xff});
  backend_.fill(state_.data(), state_.bytes(), std::byte{0});
  // Padding reads and writes the null page.
  backend_.fill(page_data(PageId{0}), page_bytes, std::byte{0});
  for (StepSlot& slot : slots_) {
    slot.inputs = TRY(allocate_host(backend_, inputs_bytes, "inputs of a step"));
    slot.results = TRY(allocate_host(backend_, results_bytes, "results of a step"));
    slot.fence = backend_.make_fence();
  }
  sealer_ = TRY(backend_.make_page_sealer(
      {.data = pool_.data(), .n_pages = limits_.n_pages, .layout = &model_.kv_layout()}));
  page_bytes_ = TRY(allocate_host(backend_, page_bytes, "a page on the host"));
  live_.reserve(static_cast<size_t>(limits_.rows_max));
  return {};
}

void ModelExecutor::record_decodes(StepChecks checks) {
  StepSlot& slot = slots_[0];
  const auto run_once = [&](const StepShape& shape, int64_t bytes) {
    send_inputs(slot, bytes);
    run(shape, checks);
    slot.fence->set();
    slot.fence->wait();
  };
  // The largest step first: it makes the ops take all the memory they will ever want.
  const StepShape largest = largest_shape(limits_, checks);
  run_once(largest, writer_.write_largest(++sent_, inputs_in(slot.inputs, largest)));
  const auto warm_up = [&](int64_t n_rows) {
    const StepShape shape = decode_shape(n_rows, limits_, checks);
    const StepPlan nothing;
    const StepInputs in = inputs_in(slot.inputs, shape);
    run_once(shape, writer_.write({.plan = nothing, .live = {}}, recent_, ++sent_, in));
  };
  // A backend that cannot record runs its steps one op after the other.
  Status recorded = recordings_[static_cast<size_t>(checks)].record(
      backend_, limits_.rows_max, warm_up,
      [this, checks](int64_t n_rows) { run(decode_shape(n_rows, limits_, checks), checks); });
  if (!recorded.ok()) recording_status_ = std::move(recorded);
}

size_t ModelExecutor::n_recordings() const {
  size_t n = 0;
  for (const DecodeRecordings& recordings : recordings_) n += recordings.size();
  return n;
}

int64_t ModelExecutor::recorded_nodes(StepChecks checks, int64_t n_rows) const {
  const auto recorded = recordings_[static_cast<size_t>(checks)].find(n_rows);
  return recorded ? backend_.recorded_nodes(recorded->recording) : 0;
}

void ModelExecutor::watch_directory(std::span<const PageEntry> directory, StepChecks checks) {
  CHECK(directory.empty() == (checks == StepChecks::none));
  CHECK(directory.empty() || static_cast<int64_t>(directory.size()) == limits_.n_pages);
  directory_ = directory;
  checks_ = checks;
  if (checks != StepChecks::none) mirror_.watch(directory);
}

StepInputs ModelExecutor::inputs_in(const Buffer& buffer, const StepShape& shape) const {
  return step_inputs_in({buffer.data(), static_cast<size_t>(buffer.bytes())}, shape);
}

Result<TicketId> ModelExecutor::submit(const StepPlan& plan, const StepHeader& header) {
  TRY_OK(check_plan(plan, limits_));
  TRY_OK(recent_.check(plan));
  ++steps_;
  StepSlot& slot = begin_slot(plan);
  check_rows(plan, header, slot);
  if (!live_.empty()) launch(plan, slot);
  recent_.begin(slot.ticket, slot.sent);
  for (const OpenRow& row : slot.rows) recent_.add_row(row.logit);
  return slot.ticket;
}

ModelExecutor::StepSlot& ModelExecutor::begin_slot(const StepPlan& plan) {
  StepSlot& slot = slots_[steps_ % kSlots];
  CHECK(slot.state == SlotState::free);  // at most kOpenStepsMax are open
  slot.state = SlotState::open;
  slot.ticket = TicketId{++last_ticket_};
  slot.sent = 0;
  slot.checks = checks_;
  slot.result.step = plan.step;
  slot.result.rows.clear();
  slot.rows.clear();
  slot.pages.clear();
  slot.sources.clear();
  return slot;
}

void ModelExecutor::check_rows(const StepPlan& plan, const StepHeader& header, StepSlot& slot) {
  // The count of steps comes by a way of its own: a plan that was seen before is not run again.
  const bool genuine = is_genuine(plan, header, steps_);
  live_.clear();
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const StepRow& row = plan.rows[r];
    StepRowResult& result =
        slot.result.rows.emplace_back(StepRowResult{.request = row.request, .nonce = row.nonce});
    OpenRow& open = slot.rows.emplace_back();
    if (!genuine) {
      result.verdict = RowVerdict::bad_header;
      continue;
    }
    open.end = row.first_position + static_cast<int32_t>(row.tokens.size());
    open.pages_begin = slot.pages.size();
    slot.pages.insert(slot.pages.end(), row.pages.begin(), row.pages.end());
    open.pages_end = slot.pages.size();
    open.sources_begin = slot.sources.size();
    const auto depend_on = [&slot](const std::vector<TokenSource>& tokens) {
      std::ranges::copy_if(tokens, std::back_inserter(slot.sources),
                           [](const TokenSource& source) { return source.literal < 0; });
    };
    depend_on(row.tokens);
    depend_on(row.sampler.generated);
    open.sources_end = slot.sources.size();
    if (result.verdict == RowVerdict::ok && !has_its_tokens(slot, open)) {
      result.verdict = RowVerdict::no_token;
    }
    open.is_live = result.verdict == RowVerdict::ok;
    if (!open.is_live) continue;
    open.placed = static_cast<int64_t>(live_.size());
    live_.push_back({.planned = r});
  }
}

bool ModelExecutor::has_its_tokens(const StepSlot& slot, const OpenRow& row) const {
  return std::all_of(slot.sources.begin() + static_cast<std::ptrdiff_t>(row.sources_begin),
                     slot.sources.begin() + static_cast<std::ptrdiff_t>(row.sources_end),
                     [this](const TokenSource& source) { return recent_.gives_token(source); });
}

void ModelExecutor::launch(const StepPlan& plan, StepSlot& slot) {
  StepShape shape = shape_of(plan, live_, checks_);
  for (const LiveRow& row : live_) {
    OpenRow& open = slot.rows[row.planned];
    open.logit = row.logit;
    open.scores = row.scores;
    open.n_scores = static_cast<int64_t>(plan.rows[row.planned].targets.size());
  }
  const auto n_results = shape.n_logits;
  const std::optional<DecodeRecordings::Recorded> recorded =
      is_decode(plan, live_) ? recordings_[static_cast<size_t>(checks_)].find(shape.n_rows)
                             : std::nullopt;
  if (recorded) shape = decode_shape(recorded->n_rows, limits_, checks_);

  slot.sent = ++sent_;
  StepContent content{.plan = plan, .live = live_};
  if (checks_ != StepChecks::none) content.changes = mirror_.begin_step(slot.sent);
  send_inputs(slot, writer_.write(content, recent_, slot.sent, inputs_in(slot.inputs, shape)));
  if (recorded) {
    backend_.replay(recorded->recording);
  } else {
    run(shape, checks_);
  }
  const int64_t bytes = sampled_at() + n_results * int64_t{sizeof(ops::SampledRow)};
  backend_.fetch(slot.results.span().first(static_cast<size_t>(bytes)), results_.data());
  slot.fence->set();
}

void ModelExecutor::send_inputs(const StepSlot& slot, int64_t bytes) {
  backend_.send(inputs_.data(), slot.inputs.span().first(static_cast<size_t>(bytes)));
}

int64_t ModelExecutor::sampled_at() const {
  return kOpeningBytes + limits_.rows_max * int64_t{sizeof(PageCheck)};
}

void ModelExecutor::run(const StepShape& shape, StepChecks checks) {
  const StepInputs in = inputs_in(inputs_, shape);
  const auto kept = kept_.view<Token>(kRecentSteps, int64_t{limits_.rows_max});
  const auto state = state_.view<uint64_t>(ops::kStepStateWords);
  const auto step = view_of<const uint64_t>(state.data, int64_t{1});
  const auto lives = lives_.view<PageLife>(int64_t{limits_.n_pages});
  const bool has_checks = checks != StepChecks::none;
  ops::open_step(backend_, {.out = results_.view<ops::StepOpening>(int64_t{1}),
                            .state = state,
                            .inputs = in,
                            .recent = kept,
                            .lives = has_checks ? lives : View<PageLife, 1>{}});
  auto* const page_checks = reinterpret_cast<PageCheck*>(results_.data() + kOpeningBytes);
  const auto check_pages = [&](ops::CheckTime time, const View<const TokenPlace, 1>& places) {
    if (!has_checks) return;
    ops::check_pages(backend_, {.out = view_of(page_checks, shape.n_rows),
                                .inputs = in,
                                .lives = lives,
                                .step = step,
                                .places = places,
                                .time = time});
  };
  check_pages(ops::CheckTime::before, {});
  ModelBatch batch{.ids = in.ids,
                   .tokens = token_rows(in),
                   .kv = {.pool = pool_.data(),
                          .n_pages = limits_.n_pages,
                          .layout = &model_.kv_layout(),
                          .table = in.table}};
  if (checks == StepChecks::pages_and_writes) {
    batch.guard = {.tags = in.tags, .lives = lives, .rows = view_of(page_checks, shape.n_rows)};
  }
  choose_tokens(in, batch);
  check_pages(ops::CheckTime::after, model_.places(shape.n_tokens));
}

void ModelExecutor::choose_tokens(const StepInputs& in, ModelBatch batch) {
  // The model gives rows_max rows of logits at a time, which hold all that sample. What a prompt
  // wants scored beyond them is computed from the same pass, in turns.
  const int64_t n_logits = in.shape.n_logits;
  const auto rows_from = [&](int64_t first) {
    const int64_t n = std::min<int64_t>(n_logits - first, limits_.rows_max);
    return view_of<const int32_t>(in.logit_rows.data + first, n);
  };
  batch.logit_rows = rows_from(0);
  sample_rows(in, model_.forward(batch), 0);
  for (int64_t first = limits_.rows_max; first < n_logits; first += limits_.rows_max) {
    batch.logit_rows = rows_from(first);
    sample_rows(in, model_.logits(batch), first);
  }
}

void ModelExecutor::sample_rows(const StepInputs& in, View<float, 2> logits, int64_t first) {
  auto* const sampled = reinterpret_cast<ops::SampledRow*>(results_.data() + sampled_at());
  const int64_t n = logits[0];
  const int64_t rows_max = limits_.rows_max;
  ops::sample(backend_, {.out = view_of(sampled + first, n),
                         .logits = logits,
                         .rows = view_of<const SamplerRow>(in.samplers.data + first, n),
                         .words = in.extra,
                         .recent = first == 0 ? kept_.view<Token>(kRecentSteps, rows_max)
                                              : scored_.view<Token>(int64_t{1}, rows_max),
                         .step = state_.view<const uint64_t>(int64_t{1})});
}

ModelExecutor::StepSlot& ModelExecutor::slot_of(TicketId ticket) {
  const auto found = std::ranges::find_if(slots_, [ticket](const StepSlot& slot) {
    return slot.state != SlotState::free && slot.ticket == ticket;
  });
  CHECK(found != slots_.end());
  return *found;
}

void ModelExecutor::read_up_to(TicketId ticket) {
  // A row may depend on a token of the step before: in order.
  for (size_t i = 1; i <= kSlots; ++i) {
    StepSlot& slot = slots_[(steps_ + i) % kSlots];
    if (slot.state == SlotState::open && slot.ticket.value <= ticket.value) read(slot);
  }
}

void ModelExecutor::read(StepSlot& slot) {
  slot.state = SlotState::read;
  if (slot.sent != 0) slot.fence->wait();
  if (slot.sent != 0 && slot.checks != StepChecks::none) {
    mirror_.end_step(slot.sent, has_arrived(slot) ? DirectoryMirror::Inputs::arrived
                                                  : DirectoryMirror::Inputs::lost);
  }
  for (size_t r = 0; r < slot.rows.size(); ++r) {
    if (slot.rows[r].is_live) read_row(slot, r);
    if (slot.result.rows[r].tokens.empty()) recent_.void_row(slot.ticket, r);
  }
}

bool ModelExecutor::has_arrived(const StepSlot& slot) {
  const auto& opening = *reinterpret_cast<const ops::StepOpening*>(slot.results.data());
  return opening.is_good == 1 && opening.step == slot.sent;
}

const PageCheck& ModelExecutor::page_check_of(const StepSlot& slot, const OpenRow& row) const {
  const auto* const checks =
      reinterpret_cast<const PageCheck*>(slot.results.data() + kOpeningBytes);
  return checks[row.placed];
}

void ModelExecutor::read_page_check(const StepSlot& slot, const OpenRow& open,
                                    StepRowResult* result) const {
  const PageCheck& check = page_check_of(slot, open);
  // Of another step or row: nothing was compared, and whoever counts will see it.
  if (check.step != slot.sent || check.nonce != result->nonce) return;
  result->pages_checked = check.compared;
  if (check.failed > 0) {
    result->verdict = RowVerdict::stale_page;
    result->page = PageId{check.page};
    result->found_tag = check.found_tag;
  } else if (check.dropped > 0) {
    result->verdict = RowVerdict::stale_write;
    result->page = PageId{check.dropped_page};
    result->found_tag = mirror_.directory()[static_cast<size_t>(check.dropped_page)].tag;
  }
}

void ModelExecutor::read_row(StepSlot& slot, size_t row) {
  const OpenRow& open = slot.rows[row];
  StepRowResult& result = slot.result.rows[row];
  if (!has_arrived(slot)) {
    result.verdict = RowVerdict::bad_header;
    return;
  }
  result.accepted = open.end;
  if (!has_its_tokens(slot, open)) {
    result.verdict = RowVerdict::no_token;
    return;
  }
  if (slot.checks != StepChecks::none) {
    read_page_check(slot, open, &result);
    if (result.verdict != RowVerdict::ok) return;
  }
  if (open.logit >= 0) {
    const auto* const rows =
        reinterpret_cast<const ops::SampledRow*>(slot.results.data() + sampled_at());
    const ops::SampledRow& sampled = rows[open.logit];
    result.verdict = to_verdict(static_cast<ops::SampleVerdict>(sampled.verdict));
    if (result.verdict == RowVerdict::ok) result.tokens.push_back(to_logprob(sampled));
  }
  read_scores(slot, open, &result);
  // Once more, here: the directory may have changed since the step was sent, and its mirror with
  // the next step only. What the step's own checks covered stays what is counted.
  if (result.verdict == RowVerdict::ok) {
    const int32_t covered = result.pages_checked;
    check_row_pages(
        std::span(slot.pages).subspan(open.pages_begin, open.pages_end - open.pages_begin),
        directory_, &result);
    result.pages_checked = covered;
  }
  if (result.verdict == RowVerdict::ok) return;
  result.tokens.clear();
  result.scores.clear();
}

void ModelExecutor::read_scores(const StepSlot& slot, const OpenRow& row,
                                StepRowResult* result) const {
  const auto* const rows =
      reinterpret_cast<const ops::SampledRow*>(slot.results.data() + sampled_at());
  for (int64_t i = 0; i < row.n_scores && result->verdict == RowVerdict::ok; ++i) {
    const ops::SampledRow& scored = rows[row.scores + i];
    result->verdict = to_verdict(static_cast<ops::SampleVerdict>(scored.verdict));
    result->scores.push_back(to_logprob(scored));
  }
}

StepResult ModelExecutor::collect_step(TicketId ticket) {
  read_up_to(ticket);
  StepSlot& slot = slot_of(ticket);
  slot.state = SlotState::free;
  return std::move(slot.result);
}

bool ModelExecutor::is_done(TicketId ticket) {
  CHECK(ticket.value >= 1 && ticket.value <= last_ticket_);
  return std::ranges::none_of(slots_, [ticket](const StepSlot& slot) {
    return slot.state == SlotState::open && slot.ticket.value <= ticket.value && slot.sent != 0 &&
           !slot.fence->is_passed();
  });
}

void ModelExecutor::wait(TicketId ticket) {
  CHECK(ticket.value >= 1 && ticket.value <= last_ticket_);
  read_up_to(ticket);
}

}  // namespace quire
