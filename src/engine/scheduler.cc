#include "engine/scheduler.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace quire {

namespace {

// Pages that are still missing before position `end` exists.
int32_t missing_pages(int32_t end, int32_t n_pages, int32_t page_tokens) {
  return std::max(0, static_cast<int32_t>(div_up(end, page_tokens)) - n_pages);
}

// Fills one schedule: what is left of the step's budgets, and the rules of the header's comment.
class Planner {
 public:
  Planner(const SchedulerState& state, const SchedulerLimits& limits)
      : state_(state),
        limits_(limits),
        available_(state.available_pages),
        budget_(limits.prefill_tokens_max) {}

  Schedule plan() {
    if (!add_decodes()) return preempt_last();
    add_prefills();
    admit();
    const auto is_ending = [](const RunningView& row) { return row.is_ending; };
    if (std::ranges::any_of(state_.running, is_ending)) return std::move(schedule_);
    if (schedule_.rows.empty() && state_.running.size() > 1) return preempt_last();
    if (schedule_.rows.empty() && !state_.running.empty()) {
      return {.refuse = state_.running.front().request};
    }
    if (schedule_.rows.empty() && !state_.waiting.empty() && state_.free_slots > 0) {
      return {.refuse = state_.waiting.front().request};
    }
    return std::move(schedule_);
  }

 private:
  Schedule preempt_last() const { return {.preempt = state_.running.back().request}; }

  // False when a page is missing and somebody younger, or the row itself, has to give way.
  bool add_decodes() {
    for (const RunningView& row : state_.running) {
      CHECK(row.computed < row.n_tokens);
      if (row.is_ending) continue;
      if (row.n_tokens - row.computed != 1) continue;
      const int32_t pages = missing_pages(row.n_tokens, row.n_pages, limits_.page_tokens);
      if (pages > available_) return state_.running.size() == 1;
      available_ -= pages;
      schedule_.rows.push_back({row.request, row.computed, 1, pages, true});
    }
    return true;
  }

  void add_prefills() {
    for (const RunningView& row : state_.running) {
      const int32_t left = row.n_tokens - row.computed;
      if (left == 1 || row.is_ending) continue;
      add_chunk(row.request, {row.computed, row.n_tokens, row.n_pages});
    }
  }

  struct Progress {
    int32_t computed, n_tokens, n_pages;
  };

  // As much of the prompt as the budgets of tokens and pages allow; perhaps nothing. When it is not
  // all that is left of the prompt, one of the two is used up: so nothing that a prompt will need
  // in later steps is given to a newcomer.
  void add_chunk(RequestId request, Progress at) {
    const int32_t room = (at.n_pages + available_) * limits_.page_tokens - at.computed;
    const int32_t n = std::min({at.n_tokens - at.computed, budget_, room});
    if (n <= 0) return;
    const int32_t pages = missing_pages(at.computed + n, at.n_pages, limits_.page_tokens);
    available_ -= pages;
    budget_ -= n;
    schedule_.rows.push_back({request, at.computed, n, pages, at.computed + n == at.n_tokens});
  }

  void admit() {
    // A page for each runner, so that an admission is not followed by a preemption.
    auto reserve = static_cast<int32_t>(state_.running.size());
    int32_t slots = state_.free_slots;
    for (const WaitingView& request : state_.waiting) {
      if (slots == 0 || budget_ == 0) return;
      const int32_t cached = request.cached_pages;
      const int32_t free = available_ - request.unheld_pages - reserve;
      const int32_t need = missing_pages(request.n_tokens + 1, cached, limits_.page_tokens);
      const bool is_alone = state_.running.empty() && schedule_.admit.empty();
      const int32_t least = missing_pages(request.n_tokens, cached, limits_.page_tokens);
      if (is_alone ? least > free : need > free) return;
      available_ -= request.unheld_pages;
      schedule_.admit.push_back(request.request);
      add_chunk(request.request, {cached * limits_.page_tokens, request.n_tokens, cached});
      --slots;
      ++reserve;
    }
  }

  const SchedulerState& state_;
  const SchedulerLimits& limits_;
  Schedule schedule_;
  int32_t available_;  // pages not yet given to a row of this schedule
  int32_t budget_;     // prompt tokens left
};

}  // namespace

Schedule make_schedule(const SchedulerState& state, const SchedulerLimits& limits) {
  return Planner(state, limits).plan();
}

}  // namespace quire
