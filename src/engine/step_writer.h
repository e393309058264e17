// From the rows of a plan to the inputs of a step, as they travel (format/step_inputs.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/recent_tokens.h"
#include "format/step_inputs.h"
#include "ops/paged_kv.h"
#include "ops/sample.h"

namespace quire {

// A row of a plan that passed its checks, and is to run.
struct LiveRow {
  size_t planned = 0;   // its place in the plan
  int64_t logit = -1;   // row of the logits, or none
  int64_t scores = -1;  // first of the rows of the logits that score its targets, or none
};

// The sizes of the step that runs `live`; `logit` and `scores` of each are set. Rows of the logits
// that sample come before those that score.
StepShape shape_of(const StepPlan& plan, std::span<LiveRow> live, StepChecks checks);

// The sizes of the largest step there can be: rows of one token, then prompts as long as a context
// until the step is full.
StepShape largest_shape(const PlanLimits& limits, StepChecks checks);
// The sizes of a step of `n_rows` rows that decode: one token each, and all want the next.
StepShape decode_shape(int64_t n_rows, const PlanLimits& limits, StepChecks checks);
// Whether the rows are of such a step.
bool is_decode(const StepPlan& plan, std::span<const LiveRow> live);

// Bytes that the inputs of any plan within `limits` fit in, with a change of every page.
int64_t step_inputs_bytes_max(const PlanLimits& limits);

// The rows of a step, as ops take them.
TokenRows token_rows(const StepInputs& inputs);

// What the inputs of a step say.
struct StepContent {
  const StepPlan& plan;
  std::span<const LiveRow> live;             // of the plan, in the order of their rows
  std::span<const PageChange> changes = {};  // of the directory; none where tags do not travel
};

class StepWriter {
 public:
  explicit StepWriter(const PlanLimits& limits) : limits_(limits) {}

  // Writes the inputs of the `sent`-th step, in host memory. Rows that `inputs` has beyond `live`
  // are padding: a token 0 at position 0 of the null page, whose results nobody reads. Returns the
  // bytes that are used, from the front.
  int64_t write(const StepContent& content, const RecentTokens& recent, uint64_t sent,
                const StepInputs& inputs);

  // The inputs of a step of largest_shape, all on the null page.
  int64_t write_largest(uint64_t sent, const StepInputs& inputs) const;

 private:
  void write_row(const StepRow& row, const LiveRow& live, const RecentTokens& recent,
                 const StepInputs& inputs);
  SamplerRow sampler_of(const StepRow& row, const RecentTokens& recent, ops::SamplerWords& words);

  const PlanLimits limits_;
  int64_t row_ = 0;                 // of the one being written
  int64_t token_ = 0;               // where its tokens begin
  std::vector<int32_t> generated_;  // kept for its memory
};

}  // namespace quire
