#include "tools/ready_prompts.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

namespace {

// What the end of a prompt is said to have chosen.
constexpr Token kFirstToken = 1;
// A small positive number in e4m3, BF16 and FP32, as often as it comes.
constexpr std::byte kHarmless{0x38};
// Steps that a plan may still name.
constexpr size_t kKnownSteps = 4;

}  // namespace

bool ReadyPrompts::has_prompt(const StepPlan& plan) const {
  return std::ranges::any_of(
      plan.rows, [this](const StepRow& row) { return row.first_position < prompt_tokens_; });
}

StepResult ReadyPrompts::make_answer(const StepPlan& plan) {
  StepResult answer{.step = plan.step};
  for (const StepRow& row : plan.rows) {
    const auto n_tokens = static_cast<int32_t>(row.tokens.size());
    StepRowResult& result = answer.rows.emplace_back(
        StepRowResult{.request = row.request,
                      .nonce = row.nonce,
                      .accepted = row.first_position + n_tokens,
                      .pages_checked = 2 * static_cast<int32_t>(row.pages.size())});
    if (row.n_logits > 0) result.tokens.push_back({.token = kFirstToken});
  }
  return answer;
}

ReadyPrompts::Step& ReadyPrompts::find(TicketId ticket) {
  const auto found = std::ranges::find(steps_, ticket, &Step::ticket);
  CHECK(found != steps_.end());
  return *found;
}

void ReadyPrompts::rename(TokenSource& source) {
  if (source.literal >= 0) return;
  const Step& step = find(*source.ticket);
  source.ticket = step.passed_on;
  if (!step.passed_on) source.literal = kFirstToken;
}

Result<TicketId> ReadyPrompts::submit(const StepPlan& plan, const StepHeader& /*header*/) {
  Step step{.ticket = TicketId{++last_ticket_}, .number = plan.step};
  if (has_prompt(plan)) {
    step.answer = make_answer(plan);
    rows_of_last_ = 0;
  } else {
    for (const std::vector<PageId>& pages : fills_)
      ForwardingExecutor::fill_pages(pages, kHarmless);
    renumbered_ = plan;
    renumbered_.step = n_passed_on_ + 1;
    for (StepRow& row : renumbered_.rows)
      std::ranges::for_each(row.tokens, [&](auto& t) { rename(t); });
    step.passed_on = TRY(ForwardingExecutor::submit(renumbered_, make_header(renumbered_)));
    ++n_passed_on_;
    rows_of_last_ = static_cast<int32_t>(plan.rows.size());
  }
  fills_.clear();
  steps_.push_back(std::move(step));
  if (steps_.size() > kKnownSteps) steps_.pop_front();
  return TicketId{last_ticket_};
}

StepResult ReadyPrompts::collect_step(TicketId ticket) {
  Step& step = find(ticket);
  if (!step.passed_on) return std::move(step.answer);
  StepResult result = ForwardingExecutor::collect_step(*step.passed_on);
  result.step = step.number;
  return result;
}

TicketId ReadyPrompts::fill_pages(std::span<const PageId> pages, std::byte /*value*/) {
  fills_.emplace_back(pages.begin(), pages.end());
  return TicketId{0};
}

}  // namespace quire
