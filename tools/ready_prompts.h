// ReadyPrompts: an Executor under which prompts are there at once, for benches of what follows.
//
// A step that has a row of a prompt is answered and not carried out: its keys are whatever the pool
// holds, which a bench has filled. All other steps are passed on, numbered without gaps, so that
// what follows a prompt costs what it costs. Nothing is written over a prompt's pages, which may be
// any pages that were used before: so poison is left out there, and elsewhere, where a request may
// end before it has written all of a page, what is filled in is a number.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "engine/forwarding_executor.h"

namespace quire {

class ReadyPrompts final : public ForwardingExecutor {
 public:
  // `to` has carried out no step and outlives this. Every request has `prompt_tokens`.
  ReadyPrompts(Executor& to, int32_t prompt_tokens)
      : ForwardingExecutor(to), prompt_tokens_(prompt_tokens) {}

  // Of the requests from here on; none is in flight.
  void set_prompt_tokens(int32_t prompt_tokens) { prompt_tokens_ = prompt_tokens; }
  // Rows of the step that was submitted last; none when it was not carried out.
  int32_t rows_of_last() const { return rows_of_last_; }

  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override;
  StepResult collect_step(TicketId ticket) override;
  TicketId fill_pages(std::span<const PageId> pages, std::byte value) override;

 private:
  // A step that was submitted not long ago.
  struct Step {
    TicketId ticket;
    uint64_t number = 0;
    std::optional<TicketId> passed_on;  // its ticket there
    StepResult answer;                  // when it was not
  };
  bool has_prompt(const StepPlan& plan) const;
  static StepResult make_answer(const StepPlan& plan);
  Step& find(TicketId ticket);
  void rename(TokenSource& source);

  int32_t prompt_tokens_;
  std::deque<Step> steps_;
  std::vector<std::vector<PageId>> fills_;  // until it is known what step they are for
  StepPlan renumbered_;
  uint64_t last_ticket_ = 0;
  uint64_t n_passed_on_ = 0;
  int32_t rows_of_last_ = 0;
};

}  // namespace quire
