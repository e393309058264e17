#include "engine/recent_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "format/step_inputs.h"

namespace quire {

RecentTokens::RecentTokens(int32_t rows_max) : rows_max_(rows_max) {
  for (Step& step : steps_) step.logits.reserve(static_cast<size_t>(rows_max));
}

void RecentTokens::begin(TicketId ticket, uint64_t sent) {
  last_ = (last_ + 1) % steps_.size();
  steps_[last_].ticket = ticket;
  steps_[last_].sent = sent;
  steps_[last_].logits.clear();
}

void RecentTokens::add_row(int64_t logit) { steps_[last_].logits.push_back(logit); }

void RecentTokens::void_row(TicketId ticket, size_t row) {
  for (Step& step : steps_) {
    if (step.ticket == ticket) step.logits[row] = -1;
  }
}

const RecentTokens::Step* RecentTokens::find(TicketId ticket) const {
  const auto found = std::ranges::find(steps_, ticket, &Step::ticket);
  return ticket.value == 0 || found == steps_.end() ? nullptr : &*found;
}

int64_t RecentTokens::logit_of(const TokenSource& source) const {
  const Step* step = find(*source.ticket);
  CHECK(step != nullptr);
  return step->logits[static_cast<size_t>(source.row)];
}

bool RecentTokens::can_be_named(const TokenSource& source) const {
  if (source.literal >= 0) return true;
  const Step* step = find(*source.ticket);
  return step != nullptr && source.index == 0 && source.row >= 0 &&
         static_cast<size_t>(source.row) < step->logits.size();
}

Status RecentTokens::check(const StepPlan& plan) const {
  const auto is_known = [this](const TokenSource& source) { return can_be_named(source); };
  for (const StepRow& row : plan.rows) {
    if (!std::ranges::all_of(row.tokens, is_known) ||
        !std::ranges::all_of(row.sampler.generated, is_known)) {
      return invalid_argument(format("request %llu: a token of a step that gave none",
                                     static_cast<unsigned long long>(row.request.value)));
    }
  }
  return {};
}

bool RecentTokens::gives_token(const TokenSource& source) const {
  return source.literal >= 0 || logit_of(source) >= 0;
}

int32_t RecentTokens::word_of(const TokenSource& source) const {
  if (source.literal >= 0) return source.literal;
  const Step* step = find(*source.ticket);
  const auto kept = static_cast<int64_t>(step->sent % kRecentSteps);
  return recent_reference(kept * rows_max_ + logit_of(source));
}

}  // namespace quire
