#include "engine/step_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/bytes.h"

namespace quire {
namespace {

struct Written {
  std::vector<std::byte> bytes;
  StepInputs inputs;
};

Written write_largest(const PlanLimits& limits) {
  const StepShape shape = largest_shape(limits, StepChecks::pages);
  Written out{.bytes = std::vector<std::byte>(static_cast<size_t>(step_inputs_bytes(shape)))};
  out.inputs = step_inputs_in(out.bytes, shape);
  EXPECT_EQ(StepWriter(limits).write_largest(1, out.inputs), step_inputs_bytes(shape));
  return out;
}

// Kernels trust that tokens of a row are consecutive and end within its pages: the step that is
// made up at the start keeps to it, however short a context is beside a step.
TEST(StepWriterTest, TheLargestStepIsOneThatCouldBe) {
  for (const PlanLimits& limits : {
           PlanLimits{.rows_max = 64, .tokens_max = 8256, .pages_max = 32},    // several prompts
           PlanLimits{.rows_max = 64, .tokens_max = 8256, .pages_max = 4096},  // one
           PlanLimits{.rows_max = 2, .tokens_max = 4096, .pages_max = 3},      // the rows are full
           PlanLimits{.rows_max = 8, .tokens_max = 8, .pages_max = 1},         // one token each
       }) {
    SCOPED_TRACE(limits.pages_max);
    const Written step = write_largest(limits);
    const StepInputs& inputs = step.inputs;
    const int64_t context = int64_t{limits.pages_max} * limits.page_tokens;
    ASSERT_EQ(inputs.shape.n_rows, limits.rows_max);
    EXPECT_LE(inputs.shape.n_tokens, limits.tokens_max);
    TokenRows counted;
    for (int64_t r = 0; r < inputs.shape.n_rows; ++r) {
      const int64_t begin = inputs.row_begin(r);
      const int64_t n = inputs.row_begin(r + 1) - begin;
      ASSERT_GE(n, 1);
      ASSERT_LE(n, context);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(inputs.rows(begin + i), r);
        ASSERT_EQ(inputs.positions(begin + i), i);
      }
      counted.count_row(n, n);
    }
    for (int64_t i = 0; i < inputs.tags.size(); ++i) ASSERT_EQ(inputs.tags.data[i], kNoTag);
    EXPECT_EQ(inputs.row_begin(inputs.shape.n_rows), inputs.shape.n_tokens);
    EXPECT_EQ(inputs.shape.row_tokens_max, counted.row_tokens_max);
    EXPECT_EQ(inputs.shape.n_lone, counted.n_lone);
    EXPECT_EQ(inputs.shape.key_blocks, counted.key_blocks);
  }
}

TEST(StepWriterTest, TheLargestStepIsFullWhereContextsAllow) {
  const PlanLimits limits{.rows_max = 64, .tokens_max = 8256, .pages_max = 32};
  EXPECT_EQ(largest_shape(limits, StepChecks::pages).n_tokens, 8256);
  EXPECT_EQ(largest_shape(limits, StepChecks::pages).row_tokens_max, 31 * 64 + 1);
}

}  // namespace
}  // namespace quire
