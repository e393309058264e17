#include "engine/sim_executor.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "engine/integrity.h"

namespace quire {

namespace {

// The code of a cell that nothing wrote.
constexpr uint64_t kUnwritten = 0xdeadULL;
// What is read where fill_pages has left kPoison, and what is computed from it: not a number stays
// one.
constexpr uint64_t kPoisonCell = kPoison * 0x0101010101010101ULL;

// Any pure function of what was read will do.
float logprob_of(uint64_t folded) { return -static_cast<float>(folded >> 40) * 0x1p-24F; }

bool is_allowed(std::span<const uint64_t> mask, Token token) {
  const auto t = static_cast<size_t>(token);
  return mask.empty() || ((mask[t / 64] >> (t % 64)) & 1) != 0;
}

}  // namespace

uint64_t SimModel::first_cell(uint64_t salt) const { return mix64(seed ^ mix64(salt)); }

uint64_t SimModel::next_cell(uint64_t before, Token token, int32_t position) const {
  const auto what = static_cast<uint64_t>(token) << 32 | static_cast<uint32_t>(position);
  return mix64(mix64(before) ^ what);
}

uint64_t SimModel::fold(uint64_t folded, uint64_t cell) const { return mix64(folded ^ cell) + 1; }

Token SimModel::choose(uint64_t folded, uint64_t sampler_seed,
                       std::span<const uint64_t> mask) const {
  const auto first =
      static_cast<Token>(mix64(folded ^ mix64(sampler_seed)) % static_cast<uint64_t>(vocab_size));
  for (Token i = 0; i < vocab_size; ++i) {
    const Token token = (first + i) % vocab_size;
    if (is_allowed(mask, token)) return token;
  }
  return -1;
}

std::vector<Token> right_answer(const SimModel& model, uint64_t salt,
                                const GenerateRequest& request) {
  std::vector<Token> answer;
  uint64_t cell = model.first_cell(salt);
  uint64_t folded = 0;
  int32_t position = 0;
  const auto append = [&](Token token) {
    cell = model.next_cell(cell, token, position++);
    folded = model.fold(folded, cell);
  };
  for (const Token token : request.prompt) append(token);
  while (static_cast<int32_t>(answer.size()) < request.max_new_tokens) {
    const Token token = model.choose(folded, request.sampling.seed, {});
    answer.push_back(token);
    const std::vector<Token>& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    append(token);
  }
  return answer;
}

SimExecutor::SimExecutor(const SimModel& model, const PlanLimits& limits, SaltOf salt_of,
                         SimCompletion completion, SimChecks checks)
    : model_(model),
      limits_(limits),
      salt_of_(std::move(salt_of)),
      codes_(static_cast<size_t>(limits.n_pages) * static_cast<size_t>(limits.page_tokens),
             kUnwritten),
      scales_(codes_.size(), 0),
      completion_(completion),
      checks_(checks) {
  CHECK(model.vocab_size > 0 && model.vocab_size == limits.vocab_size);
}

TicketId SimExecutor::finish(Outcome outcome) {
  const TicketId ticket{++last_ticket_};
  if (!std::holds_alternative<std::monostate>(outcome)) {
    outcomes_.emplace(ticket.value, std::move(outcome));
  }
  return ticket;
}

template <class T>
T SimExecutor::collect(TicketId ticket) {
  const auto found = outcomes_.find(ticket.value);
  CHECK(found != outcomes_.end() && std::holds_alternative<T>(found->second));
  T outcome = std::move(std::get<T>(found->second));
  outcomes_.erase(found);
  return outcome;
}

size_t SimExecutor::begin_of(PageId page) const {
  CHECK(page.value >= 0 && page.value < limits_.n_pages);
  return static_cast<size_t>(page.value) * static_cast<size_t>(limits_.page_tokens);
}

std::array<std::span<std::byte>, 2> SimExecutor::bytes_of(PageId page) {
  const size_t begin = begin_of(page);
  const auto n = static_cast<size_t>(limits_.page_tokens);
  return {std::as_writable_bytes(std::span(codes_).subspan(begin, n)),
          std::as_writable_bytes(std::span(scales_).subspan(begin, n))};
}

uint64_t SimExecutor::read(const StepRow& row, int32_t position) const {
  const size_t i = index_of(place_of(row, position));
  return scales_[i] == kPoison ? kPoisonCell : std::rotl(codes_[i], scales_[i]);
}

void SimExecutor::write(CellPlace place, uint64_t cell) {
  const size_t i = index_of(place);
  const auto scale = static_cast<uint8_t>(cell >> 58);
  codes_[i] = std::rotr(cell, scale);
  scales_[i] = scale;
}

CellPlace SimExecutor::place_of(const StepRow& row, int32_t position) const {
  return {.page = row.pages[static_cast<size_t>(position / limits_.page_tokens)].page,
          .offset = position % limits_.page_tokens};
}

void SimExecutor::check_tags(const StepRow& row, StepRowResult* result) const {
  if (checks_.rows) check_row_pages(row.pages, directory_, result);
}

bool SimExecutor::store(const StepRow& row, int32_t position, uint64_t value,
                        StepRowResult* result) {
  const CellPlace right = place_of(row, position);
  const std::optional<CellPlace> place =
      faults_ == nullptr ? right : faults_->place(row, position, right);
  if (!place) return true;
  if (checks_.writes && !directory_.empty()) {
    const PageTag expected = row.pages[static_cast<size_t>(position / limits_.page_tokens)].tag;
    const PageEntry& entry = directory_[static_cast<size_t>(place->page.value)];
    const bool may_write = place->page == right.page && is_current(entry, expected) &&
                           entry.state != PageState::sealed;
    if (!may_write) {
      result->verdict = RowVerdict::stale_write;
      result->page = place->page;
      result->found_tag = entry.tag;
      return false;
    }
  }
  write(*place, value);
  return true;
}

Token SimExecutor::token_of(const TokenSource& source) const {
  if (source.literal >= 0) return source.literal;
  const auto step = std::ranges::find(recent_, *source.ticket, &Sampled::ticket);
  CHECK(step != recent_.end());
  return step->rows[static_cast<size_t>(source.row)];
}

void SimExecutor::run_row(const StepRow& row, StepRowResult* result) {
  if (result->verdict != RowVerdict::ok) return;
  int32_t position = row.first_position;
  for (const TokenSource& source : row.tokens) {
    const Token token = token_of(source);
    if (token < 0) {
      result->verdict = RowVerdict::no_token;
      return;
    }
    const uint64_t before =
        position == 0 ? model_.first_cell(salt_of_(row.request)) : read(row, position - 1);
    const bool is_number = !checks_.poison || before != kPoisonCell;
    const uint64_t value = is_number ? model_.next_cell(before, token, position) : kPoisonCell;
    if (!store(row, position, value, result)) return;
    ++position;
  }
  result->accepted = position;
  uint64_t folded = 0;
  bool is_number = true;
  const bool is_read = row.n_logits > 0 || !row.targets.empty() || checks_.poison;
  for (int32_t from = 0; from < position && is_read; ++from) {
    const uint64_t cell = read(row, from);
    is_number = is_number && (!checks_.poison || cell != kPoisonCell);
    folded = model_.fold(folded, cell);
    const int32_t target = from - row.first_position;
    if (target < 0 || target >= static_cast<int32_t>(row.targets.size())) continue;
    result->scores.push_back(
        {.token = row.targets[static_cast<size_t>(target)], .logprob = logprob_of(folded)});
  }
  check_tags(row, result);
  if (result->verdict == RowVerdict::ok && !is_number) result->verdict = RowVerdict::bad_logits;
  if (result->verdict != RowVerdict::ok) result->scores.clear();
  if (result->verdict != RowVerdict::ok || row.n_logits == 0) return;
  const Token token = model_.choose(folded, row.sampler.settings.seed, row.sampler.mask);
  if (token < 0) {
    result->verdict = RowVerdict::dead_end;
    result->scores.clear();
    return;
  }
  result->tokens.push_back({.token = token, .logprob = logprob_of(folded)});
}

Status SimExecutor::check_sources(const StepPlan& plan) const {
  const auto is_known = [this](const TokenSource& source) {
    return source.literal >= 0 ||
           std::ranges::any_of(
               jobs_, [&](const Job& job) { return job.sampled.ticket == *source.ticket; }) ||
           std::ranges::find(recent_, *source.ticket, &Sampled::ticket) != recent_.end();
  };
  for (const StepRow& row : plan.rows) {
    if (!std::ranges::all_of(row.tokens, is_known)) {
      return invalid_argument("a token of a step that is not known");
    }
  }
  return {};
}

void SimExecutor::run_row_of_oldest() {
  Job& job = jobs_.front();
  std::vector<Token>& sampled = job.sampled.rows;
  if (sampled.size() < job.plan.rows.size()) {
    StepRowResult& result = job.result.rows[sampled.size()];
    run_row(job.plan.rows[sampled.size()], &result);
    sampled.push_back(result.tokens.empty() ? -1 : result.tokens.front().token);
  }
  if (sampled.size() < job.plan.rows.size()) return;
  outcomes_.emplace(job.sampled.ticket.value, std::move(job.result));
  recent_.push_back(std::move(job.sampled));
  if (recent_.size() > kOpenStepsMax) recent_.pop_front();
  jobs_.pop_front();
}

bool SimExecutor::run_one_row() {
  if (!jobs_.empty()) run_row_of_oldest();
  return !jobs_.empty();
}

void SimExecutor::run_up_to(TicketId ticket) {
  while (!jobs_.empty() && jobs_.front().sampled.ticket.value <= ticket.value) run_row_of_oldest();
}

Result<TicketId> SimExecutor::submit(const StepPlan& plan, const StepHeader& header) {
  TRY_OK(check_plan(plan, limits_));
  TRY_OK(check_sources(plan));
  ++steps_;
  CHECK(jobs_.size() < kOpenStepsMax);
  const bool is_genuine = header.step == steps_ && header.hash == hash_plan(plan);
  Job job{
      .plan = plan, .result = {.step = plan.step}, .sampled = {.ticket = TicketId{++last_ticket_}}};
  for (const StepRow& row : plan.rows) {
    StepRowResult& result =
        job.result.rows.emplace_back(StepRowResult{.request = row.request, .nonce = row.nonce});
    if (is_genuine) {
      check_tags(row, &result);
    } else {
      result.verdict = RowVerdict::bad_header;
    }
  }
  jobs_.push_back(std::move(job));
  const TicketId ticket{last_ticket_};
  if (completion_ == SimCompletion::at_once) run_all();
  return ticket;
}

StepResult SimExecutor::collect_step(TicketId ticket) {
  run_up_to(ticket);
  return collect<StepResult>(ticket);
}

TicketId SimExecutor::copy_pages(std::span<const PageId> from, std::span<const PageId> to) {
  CHECK(from.size() == to.size());
  run_all();
  for (size_t i = 0; i < from.size(); ++i) {
    const auto source = bytes_of(from[i]);
    const auto target = bytes_of(to[i]);
    for (size_t part = 0; part < source.size(); ++part) {
      std::ranges::copy(source[part], target[part].begin());
    }
  }
  return finish({});
}

TicketId SimExecutor::fill_pages(std::span<const PageId> pages, std::byte value) {
  for (const PageId page : pages) {
    for (const std::span<std::byte> part : bytes_of(page)) std::ranges::fill(part, value);
  }
  return finish({});
}

PageSeal SimExecutor::seal_of(const SealTarget& target) {
  PageSeal seal{.low = static_cast<uint64_t>(target.logical), .high = 1};
  const size_t begin = begin_of(target.page);
  for (size_t i = begin; i < begin + static_cast<size_t>(limits_.page_tokens); ++i) {
    seal.low = mix64(seal.low ^ codes_[i]) + scales_[i];
  }
  return seal;
}

TicketId SimExecutor::seal_pages(std::span<const SealTarget> targets) {
  std::vector<PageSeal> seals;
  for (const SealTarget& target : targets) seals.push_back(seal_of(target));
  return finish(std::move(seals));
}

std::vector<PageSeal> SimExecutor::collect_seals(TicketId ticket) {
  return collect<std::vector<PageSeal>>(ticket);
}

TicketId SimExecutor::verify_pages(std::span<const SealTarget> targets,
                                   std::span<const PageSeal> expected) {
  CHECK(targets.size() == expected.size());
  std::vector<PageVerdict> verdicts;
  for (size_t i = 0; i < targets.size(); ++i) {
    const bool same = seal_of(targets[i]) == expected[i];
    verdicts.push_back(same ? PageVerdict::ok : PageVerdict::mismatch);
  }
  return finish(std::move(verdicts));
}

std::vector<PageVerdict> SimExecutor::collect_verdicts(TicketId ticket) {
  return collect<std::vector<PageVerdict>>(ticket);
}

TicketId SimExecutor::export_pages(std::span<const PageId> pages) {
  std::vector<std::byte> bytes;
  for (const PageId page : pages) {
    for (const std::span<std::byte> part : bytes_of(page)) {
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
  }
  return finish(std::move(bytes));
}

std::vector<std::byte> SimExecutor::collect_bytes(TicketId ticket) {
  return collect<std::vector<std::byte>>(ticket);
}

TicketId SimExecutor::import_pages(std::span<const PageId> pages,
                                   std::span<const std::byte> bytes) {
  run_all();
  size_t offset = 0;
  for (const PageId page : pages) {
    for (const std::span<std::byte> part : bytes_of(page)) {
      CHECK(offset + part.size() <= bytes.size());
      std::ranges::copy(bytes.subspan(offset, part.size()), part.begin());
      offset += part.size();
    }
  }
  return finish({});
}

bool SimExecutor::is_done(TicketId ticket) {
  CHECK(ticket.value >= 1 && ticket.value <= last_ticket_);
  return jobs_.empty() || jobs_.front().sampled.ticket.value > ticket.value;
}

void SimExecutor::wait(TicketId ticket) {
  CHECK(ticket.value >= 1 && ticket.value <= last_ticket_);
  run_up_to(ticket);
}

}  // namespace quire
