// RecentTokens: what the last steps sampled, as far as a plan may name it: which rows give a token,
// and where the backend keeps it. Knows no token itself.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "format/step.h"

namespace quire {

// Steps whose tokens a backend keeps: those that are open, and as many that were just read.
inline constexpr int64_t kRecentSteps = 4;

class RecentTokens {
 public:
  // `rows_max` of a step.
  explicit RecentTokens(int32_t rows_max);

  // A new step; `sent` is its number among those that reached the backend. Its rows are added in
  // order: `logit` is the row of the logits, or -1 when the row gives no token.
  void begin(TicketId ticket, uint64_t sent);
  void add_row(int64_t logit);
  // A row of a step that was begun turned out to give no token.
  void void_row(TicketId ticket, size_t row);

  // Whether everything that the plan names can be named at all. Errors: invalid_argument.
  Status check(const StepPlan& plan) const;
  // Whether the row that the source names gives a token, as far as is known. A literal does.
  bool gives_token(const TokenSource& source) const;
  // The literal, or a reference to where the backend keeps the token (format/step_inputs.h).
  int32_t word_of(const TokenSource& source) const;

 private:
  struct Step {
    TicketId ticket{0};
    uint64_t sent = 0;
    std::vector<int64_t> logits;  // of each row
  };

  const Step* find(TicketId ticket) const;
  // The row of the logits that the source names; -1 when it gave none.
  int64_t logit_of(const TokenSource& source) const;
  bool can_be_named(const TokenSource& source) const;

  const int32_t rows_max_;
  std::array<Step, kRecentSteps> steps_;
  size_t last_ = 0;
};

}  // namespace quire
