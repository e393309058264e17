#include "format/step.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace quire {
namespace {

StepPlan sample_plan() {
  StepRow row{.request = {7}, .nonce = 11, .slot = {2}, .first_position = 64};
  row.tokens = {{.literal = 5}, {.ticket = TicketId{3}, .row = 1}};
  row.n_logits = 1;
  row.sampler.prompt = {1, 2};
  row.sampler.settings.logit_bias = {{4, 0.5F}};
  row.pages = {{PageId{9}, 100}, {PageId{8}, 101}};
  row.committed = 64;
  return {.step = 12, .rows = {row}};
}

// Each change of one field must change the hash: a rank that planned otherwise is found out.
TEST(StepPlan, HashCoversEveryField) {
  const std::vector<std::function<void(StepPlan&)>> changes = {
      [](StepPlan& p) { p.step++; },
      [](StepPlan& p) { p.rows.push_back(p.rows[0]); },
      [](StepPlan& p) { p.rows[0].request.value++; },
      [](StepPlan& p) { p.rows[0].nonce++; },
      [](StepPlan& p) { p.rows[0].slot.value++; },
      [](StepPlan& p) { p.rows[0].first_position++; },
      [](StepPlan& p) { p.rows[0].tokens[0].literal++; },
      [](StepPlan& p) { p.rows[0].tokens[1].ticket->value++; },
      [](StepPlan& p) { p.rows[0].tokens[1].row++; },
      [](StepPlan& p) { p.rows[0].tokens[1].index++; },
      [](StepPlan& p) { p.rows[0].n_logits++; },
      [](StepPlan& p) { p.rows[0].sampler.settings.temperature = 0; },
      [](StepPlan& p) { p.rows[0].sampler.settings.top_p = 0.5F; },
      [](StepPlan& p) { p.rows[0].sampler.settings.min_p = 0.5F; },
      [](StepPlan& p) { p.rows[0].sampler.settings.top_k++; },
      [](StepPlan& p) { p.rows[0].sampler.settings.presence_penalty = 1; },
      [](StepPlan& p) { p.rows[0].sampler.settings.frequency_penalty = 1; },
      [](StepPlan& p) { p.rows[0].sampler.settings.repetition_penalty = 2; },
      [](StepPlan& p) { p.rows[0].sampler.settings.seed++; },
      [](StepPlan& p) { p.rows[0].sampler.settings.top_logprobs++; },
      [](StepPlan& p) { p.rows[0].sampler.settings.logit_bias[0].second++; },
      [](StepPlan& p) { p.rows[0].sampler.prompt.pop_back(); },
      [](StepPlan& p) { p.rows[0].sampler.generated.push_back({.literal = 1}); },
      [](StepPlan& p) { p.rows[0].sampler.mask.push_back(1); },
      [](StepPlan& p) { p.rows[0].pages[1].tag++; },
      [](StepPlan& p) { p.rows[0].pages[1].page.value++; },
      [](StepPlan& p) { p.rows[0].committed++; },
  };
  std::set<uint64_t> hashes = {hash_plan(sample_plan())};
  EXPECT_EQ(hash_plan(sample_plan()), *hashes.begin());
  for (const auto& change : changes) {
    StepPlan plan = sample_plan();
    change(plan);
    hashes.insert(hash_plan(plan));
  }
  EXPECT_EQ(hashes.size(), changes.size() + 1);
}

TEST(StepPlan, HeaderSumsNonces) {
  StepPlan plan = sample_plan();
  plan.rows.push_back(plan.rows[0]);
  const StepHeader header = make_header(plan);
  EXPECT_EQ(header.step, 12U);
  EXPECT_EQ(header.n_rows, 2U);
  EXPECT_EQ(header.nonce_sum, 22U);
  EXPECT_EQ(header.hash, hash_plan(plan));
}

}  // namespace
}  // namespace quire
