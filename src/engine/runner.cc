#include "engine/runner.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

// Steps whose tokens can still be named by a later one: the one before, and one in reserve.
constexpr size_t kRecentSteps = 2;

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

ops::SamplingSettings to_settings(const SamplerPlan& plan) {
  return {.temperature = plan.temperature,
          .top_p = plan.top_p,
          .min_p = plan.min_p,
          .top_k = plan.top_k,
          .presence_penalty = plan.presence_penalty,
          .frequency_penalty = plan.frequency_penalty,
          .repetition_penalty = plan.repetition_penalty,
          .seed = plan.seed,
          .top_logprobs = plan.top_logprobs,
          .logit_bias = plan.logit_bias};
}

}  // namespace

Result<std::unique_ptr<ModelExecutor>> ModelExecutor::make(Backend& backend, Model& model,
                                                           const PlanLimits& limits) {
  const KvPageLayout& layout = model.kv_layout();
  CHECK(limits.n_pages >= 2 && limits.rows_max > 0 && limits.tokens_max >= limits.rows_max &&
        limits.pages_max > 0 && limits.page_tokens == layout.page_tokens);
  std::unique_ptr<ModelExecutor> executor(new ModelExecutor(backend, model, limits));
  executor->pool_ = TRY(allocate(backend, int64_t{limits.n_pages} * layout.page_bytes, "KV pool"));
  // ids, rows and positions of the tokens; the rows' pages and first tokens; the logit rows.
  const int64_t inputs_max =
      int64_t{3} * limits.tokens_max + int64_t{limits.rows_max} * (limits.pages_max + 2) + 1;
  executor->inputs_ =
      TRY(allocate(backend, inputs_max * int64_t{sizeof(int32_t)}, "inputs of a step"));
  executor->staging_.resize(static_cast<size_t>(inputs_max));
  executor->page_bytes_.resize(static_cast<size_t>(layout.page_bytes));
  return executor;
}

void ModelExecutor::watch_directory(std::span<const PageEntry> directory) {
  CHECK(static_cast<int64_t>(directory.size()) == limits_.n_pages);
  directory_ = directory;
}

TicketId ModelExecutor::finish(Outcome outcome) {
  const TicketId ticket{++last_ticket_};
  // Only what somebody will collect is kept.
  if (!std::holds_alternative<std::monostate>(outcome)) {
    outcomes_.emplace(ticket.value, std::move(outcome));
  }
  return ticket;
}

template <class T>
T ModelExecutor::collect(TicketId ticket) {
  const auto found = outcomes_.find(ticket.value);
  CHECK(found != outcomes_.end() && std::holds_alternative<T>(found->second));
  T outcome = std::move(std::get<T>(found->second));
  outcomes_.erase(found);
  return outcome;
}

std::optional<Token> ModelExecutor::resolve(const TokenSource& source) const {
  if (source.literal >= 0) return source.literal;
  for (const Sampled& step : recent_) {
    if (step.ticket != *source.ticket) continue;
    if (source.row < 0 || static_cast<size_t>(source.row) >= step.rows.size()) return std::nullopt;
    const std::vector<Token>& row = step.rows[static_cast<size_t>(source.row)];
    if (source.index < 0 || static_cast<size_t>(source.index) >= row.size()) return std::nullopt;
    return row[static_cast<size_t>(source.index)];
  }
  return std::nullopt;
}

Status ModelExecutor::check_sources(const StepPlan& plan) const {
  for (const StepRow& row : plan.rows) {
    const auto is_known = [&](const TokenSource& source) { return resolve(source).has_value(); };
    if (!std::ranges::all_of(row.tokens, is_known) ||
        !std::ranges::all_of(row.sampler.generated, is_known)) {
      return invalid_argument(format("request %llu: a token of a step that gave none",
                                     static_cast<unsigned long long>(row.request.value)));
    }
  }
  return {};
}

Result<TicketId> ModelExecutor::submit(const StepPlan& plan, const StepHeader& header) {
  TRY_OK(check_plan(plan, limits_));
  TRY_OK(check_sources(plan));
  CHECK(static_cast<int64_t>(directory_.size()) == limits_.n_pages);
  // The count of steps comes by a way of its own: a plan that was seen before is not run again.
  ++steps_;
  const StepHeader expected = make_header(plan);
  const bool is_genuine = header.step == steps_ && header.step == expected.step &&
                          header.n_rows == expected.n_rows &&
                          header.nonce_sum == expected.nonce_sum && header.hash == expected.hash;
  StepResult result;
  if (is_genuine) {
    result = execute(plan);
  } else {
    result.step = plan.step;
    for (const StepRow& row : plan.rows) {
      result.rows.push_back(
          {.request = row.request, .nonce = row.nonce, .verdict = RowVerdict::bad_header});
    }
  }
  Sampled sampled{.ticket = TicketId{last_ticket_ + 1}};
  for (const StepRowResult& row : result.rows) {
    std::vector<Token>& tokens = sampled.rows.emplace_back();
    for (const SampledLogprob& token : row.tokens) tokens.push_back(token.token);
  }
  recent_.push_back(std::move(sampled));
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  return finish(std::move(result));
}

StepResult ModelExecutor::execute(const StepPlan& plan) {
  StepResult result{.step = plan.step};
  std::vector<LiveRow> live;
  live.reserve(plan.rows.size());
  for (const StepRow& row : plan.rows) {
    StepRowResult& row_result =
        result.rows.emplace_back(StepRowResult{.request = row.request, .nonce = row.nonce});
    check_row_pages(row, directory_, &row_result);
    if (row_result.verdict == RowVerdict::ok) live.push_back({result.rows.size() - 1});
  }
  if (live.empty()) return result;
  const ModelBatch batch = stage(plan, live);
  const View<const float, 2> logits = model_.forward(batch);
  for (const LiveRow& row : live) {
    const StepRow& planned = plan.rows[row.planned];
    result.rows[row.planned].accepted =
        planned.first_position + static_cast<int32_t>(planned.tokens.size());
  }
  if (batch.logit_rows[0] > 0) sample(plan, live, logits, &result);
  // Again before a token leaves: what was read may have changed hands meanwhile.
  for (const LiveRow& row : live) {
    StepRowResult& row_result = result.rows[row.planned];
    if (row_result.verdict == RowVerdict::ok) {
      check_row_pages(plan.rows[row.planned], directory_, &row_result);
    }
    if (row_result.verdict != RowVerdict::ok) row_result.tokens.clear();
  }
  return result;
}

ModelBatch ModelExecutor::stage(const StepPlan& plan, std::span<LiveRow> live) {
  int64_t n_tokens = 0;
  int64_t width = 1;  // of the page table: the longest row's
  int64_t n_logits = 0;
  TokenRows tokens;
  for (LiveRow& row : live) {
    const StepRow& planned = plan.rows[row.planned];
    const auto row_tokens = static_cast<int64_t>(planned.tokens.size());
    n_tokens += row_tokens;
    tokens.count_row(row_tokens, planned.first_position + row_tokens);
    width = std::max(width, static_cast<int64_t>(planned.pages.size()));
    if (planned.n_logits > 0) row.logit = n_logits++;
  }
  const auto n_rows = static_cast<int64_t>(live.size());
  int32_t* const ids = staging_.data();
  int32_t* const rows = ids + n_tokens;
  int32_t* const positions = rows + n_tokens;
  int32_t* const table = positions + n_tokens;
  int32_t* const row_begin = table + n_rows * width;
  int32_t* const logit_rows = row_begin + n_rows + 1;
  std::fill_n(table, n_rows * width, -1);
  int64_t token = 0;
  for (int64_t r = 0; r < n_rows; ++r) {
    const StepRow& planned = plan.rows[live[static_cast<size_t>(r)].planned];
    for (size_t k = 0; k < planned.pages.size(); ++k) {
      table[r * width + static_cast<int64_t>(k)] = planned.pages[k].page.value;
    }
    int32_t position = planned.first_position;
    row_begin[r] = static_cast<int32_t>(token);
    for (const TokenSource& source : planned.tokens) {
      ids[token] = *resolve(source);
      rows[token] = static_cast<int32_t>(r);
      positions[token++] = position++;
    }
    const int64_t logit = live[static_cast<size_t>(r)].logit;
    if (logit >= 0) logit_rows[logit] = static_cast<int32_t>(token - 1);
  }
  row_begin[n_rows] = static_cast<int32_t>(n_tokens);
  const auto used = static_cast<size_t>(3 * n_tokens + n_rows * (width + 1) + 1 + n_logits);
  backend_.copy_in(inputs_.data(), std::as_bytes(std::span(staging_).first(used)));

  const auto* const sent = reinterpret_cast<const int32_t*>(inputs_.data());
  const int32_t* const sent_row_begin = sent + 3 * n_tokens + n_rows * width;
  tokens.row = view_of(sent + n_tokens, n_tokens);
  tokens.position = view_of(sent + 2 * n_tokens, n_tokens);
  tokens.row_begin = view_of(sent_row_begin, n_rows + 1);
  return {.ids = view_of(sent, n_tokens),
          .tokens = tokens,
          .kv = {.pool = pool_.data(),
                 .n_pages = limits_.n_pages,
                 .layout = &model_.kv_layout(),
                 .table = view_of(sent + 3 * n_tokens, n_rows, width)},
          .logit_rows = view_of(sent_row_begin + n_rows + 1, n_logits)};
}

void ModelExecutor::sample(const StepPlan& plan, std::span<const LiveRow> live,
                           View<const float, 2> logits, StepResult* result) {
  const auto n = static_cast<size_t>(logits[0]);
  std::vector<ops::SamplingSettings> settings(n);
  std::vector<std::vector<Token>> generated(n);
  std::vector<ops::SampleRow> rows(n);
  std::vector<ops::SampledToken> sampled(n);
  for (const LiveRow& row : live) {
    if (row.logit < 0) continue;
    const auto i = static_cast<size_t>(row.logit);
    const StepRow& planned = plan.rows[row.planned];
    settings[i] = to_settings(planned.sampler);
    for (const TokenSource& source : planned.sampler.generated) {
      generated[i].push_back(*resolve(source));
    }
    rows[i] = {.settings = &settings[i],
               .position = static_cast<uint64_t>(planned.first_position) + planned.tokens.size(),
               .prompt = planned.sampler.prompt,
               .generated = generated[i],
               .mask = planned.sampler.mask};
  }
  ops::sample(backend_, {.out = sampled, .logits = logits, .rows = rows});
  for (const LiveRow& row : live) {
    if (row.logit < 0) continue;
    ops::SampledToken& token = sampled[static_cast<size_t>(row.logit)];
    StepRowResult& row_result = result->rows[row.planned];
    row_result.verdict = to_verdict(token.verdict);
    if (row_result.verdict != RowVerdict::ok) continue;
    row_result.tokens.push_back(
        {.token = token.token, .logprob = token.logprob, .top = std::move(token.top)});
  }
}

StepResult ModelExecutor::collect_step(TicketId ticket) { return collect<StepResult>(ticket); }

std::byte* ModelExecutor::page_data(PageId page) {
  CHECK(page.value >= 0 && page.value < limits_.n_pages);
  return pool_.data() + page.value * model_.kv_layout().page_bytes;
}

std::span<const std::byte> ModelExecutor::read_page(PageId page) {
  backend_.copy_out(page_bytes_, page_data(page));
  return page_bytes_;
}

TicketId ModelExecutor::copy_pages(std::span<const PageId> from, std::span<const PageId> to) {
  CHECK(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    backend_.copy_in(page_data(to[i]), read_page(from[i]));
  }
  return finish({});
}

TicketId ModelExecutor::fill_pages(std::span<const PageId> pages, std::byte value) {
  for (const PageId page : pages) {
    backend_.fill(page_data(page), model_.kv_layout().page_bytes, value);
  }
  return finish({});
}

TicketId ModelExecutor::seal_pages(std::span<const SealTarget> targets) {
  std::vector<PageSeal> seals;
  seals.reserve(targets.size());
  for (const SealTarget& target : targets) {
    seals.push_back(seal_page(model_.kv_layout(), target.logical, read_page(target.page)));
  }
  return finish(std::move(seals));
}

std::vector<PageSeal> ModelExecutor::collect_seals(TicketId ticket) {
  return collect<std::vector<PageSeal>>(ticket);
}

TicketId ModelExecutor::verify_pages(std::span<const SealTarget> targets,
                                     std::span<const PageSeal> expected) {
  CHECK(targets.size() == expected.size());
  std::vector<PageVerdict> verdicts;
  verdicts.reserve(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const PageSeal found =
        seal_page(model_.kv_layout(), targets[i].logical, read_page(targets[i].page));
    verdicts.push_back(found == expected[i] ? PageVerdict::ok : PageVerdict::mismatch);
  }
  return finish(std::move(verdicts));
}

std::vector<PageVerdict> ModelExecutor::collect_verdicts(TicketId ticket) {
  return collect<std::vector<PageVerdict>>(ticket);
}

TicketId ModelExecutor::export_pages(std::span<const PageId> pages) {
  std::vector<std::byte> bytes;
  bytes.reserve(pages.size() * page_bytes_.size());
  for (const PageId page : pages) {
    const std::span<const std::byte> data = read_page(page);
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
  return finish(std::move(bytes));
}

std::vector<std::byte> ModelExecutor::collect_bytes(TicketId ticket) {
  return collect<std::vector<std::byte>>(ticket);
}

TicketId ModelExecutor::import_pages(std::span<const PageId> pages,
                                     std::span<const std::byte> bytes) {
  CHECK(bytes.size() == pages.size() * page_bytes_.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    backend_.copy_in(page_data(pages[i]),
                     bytes.subspan(i * page_bytes_.size(), page_bytes_.size()));
  }
  return finish({});
}

bool ModelExecutor::is_done(TicketId ticket) {
  CHECK(ticket.value >= 1 && ticket.value <= last_ticket_);
  return true;
}

void ModelExecutor::wait(TicketId ticket) { CHECK(is_done(ticket)); }

}  // namespace quire
