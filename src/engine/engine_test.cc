#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/check.h"
#include "engine/faulty_executor.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

using testing::HasSubstr;

constexpr int32_t kVocab = 100;
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

uint64_t no_salt(RequestId) { return 0; }

EngineConfig small_config() {
  return {.n_pages = 33,
          .page_tokens = 4,
          .vocab_size = kVocab,
          .context_tokens = 64,
          .running_requests_max = 4,
          .queued_requests_max = 8,
          .chunked_prefill_tokens = 16};
}

std::vector<Token> right(const GenerateRequest& request) {
  return right_answer(kModel, 0, request);
}

class EngineTest : public testing::Test {
 protected:
  void start(const EngineConfig& config) {
    engine_.reset();
    sim_ = std::make_unique<SimExecutor>(kModel, executor_limits(config), no_salt);
    executor_ = std::make_unique<FaultyExecutor>(*sim_);
    engine_ = std::make_unique<Engine>(config, *executor_, clock_, log_);
  }
  void SetUp() override { start(small_config()); }

  RequestId add(const GenerateRequest& request, Heard& heard) {
    const Result<RequestId> id = engine_->add(request, hear(heard));
    CHECK(id.ok());
    return id.value();
  }
  void step() {
    engine_->step();
    const Status audit = engine_->audit();
    EXPECT_TRUE(audit.ok()) << audit.error().message;
  }
  void run_to_end() {
    for (int i = 0; i < 1000 && !engine_->is_idle(); ++i) step();
    EXPECT_TRUE(engine_->is_idle());
  }
  // After the end: every page is free or cached, but for `quarantined`.
  void expect_all_pages_back(int32_t quarantined = 0) {
    ASSERT_TRUE(engine_->flush_cache());
    EXPECT_EQ(engine_->stats().pages_free, engine_->stats().pages_total - quarantined);
    EXPECT_EQ(engine_->stats().pages_quarantined, quarantined);
  }
  // Of a fresh engine: a request is aborted, twice, after so many steps (from 0 on it is queued, in
  // its first chunk, in its last, decoding, and finished), and its neighbour notices nothing.
  void expect_abort_after(int steps) {
    const GenerateRequest request = seeded_request(counting_prompt(1, 30, kVocab), 8);
    const GenerateRequest other = seeded_request({5, 6, 7}, 12);
    Heard heard;
    Heard neighbour;
    const RequestId id = add(request, heard);
    add(other, neighbour);
    for (int i = 0; i < steps; ++i) step();
    const bool was_finished = heard.n_finishes == 1;
    engine_->abort(id);
    engine_->abort(id);
    ASSERT_EQ(heard.n_finishes, 1) << "after " << steps << " steps";
    EXPECT_EQ(heard.last().finish, was_finished ? FinishReason::length : FinishReason::aborted);
    EXPECT_TRUE(engine_->audit().ok());
    run_to_end();
    EXPECT_EQ(neighbour.ids(), right(other));
    expect_all_pages_back();
  }

  ManualClock clock_;
  Log log_{LogLevel::silent, LogFormat::text};
  std::unique_ptr<SimExecutor> sim_;
  std::unique_ptr<FaultyExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, OneRequestIsAnsweredAndCounted) {
  const GenerateRequest request = seeded_request({1, 2, 3}, 6);
  Heard heard;
  const RequestId id = add(request, heard);
  run_to_end();
  EXPECT_EQ(heard.ids(), right(request));
  EXPECT_EQ(heard.n_finishes, 1);
  EXPECT_EQ(heard.last().finish, FinishReason::length);
  EXPECT_EQ(heard.last().request, id);
  EXPECT_EQ(heard.last().prompt_tokens, 3);
  EXPECT_EQ(heard.last().completion_tokens, 6);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.requests_finished, 1U);
  EXPECT_EQ(stats.prompt_tokens, 3U);
  EXPECT_EQ(stats.generation_tokens, 6U);
  EXPECT_GT(stats.integrity_checked, 0U);
  EXPECT_EQ(stats.integrity_failed, 0U);
  expect_all_pages_back();
}

TEST_F(EngineTest, AStopTokenEndsAndIsReported) {
  GenerateRequest request = seeded_request({1, 2, 3}, 20);
  request.stop_tokens = {right(request)[4]};
  Heard heard;
  add(request, heard);
  run_to_end();
  EXPECT_EQ(heard.last().finish, FinishReason::stop);
  EXPECT_EQ(heard.ids(), right(request));
  EXPECT_EQ(heard.ids().back(), request.stop_tokens[0]);
}

TEST_F(EngineTest, WhatCanNeverFitIsRefusedAtOnce) {
  const auto refusal = [&](const GenerateRequest& request) {
    Heard heard;
    const Result<RequestId> id = engine_->add(request, hear(heard));
    EXPECT_FALSE(id.ok());
    EXPECT_TRUE(heard.outputs.empty());
    return id.ok() ? std::string() : id.error().message;
  };
  EXPECT_THAT(refusal(seeded_request({}, 1)), HasSubstr("empty"));
  EXPECT_THAT(refusal(seeded_request({1}, 0)), HasSubstr("max_new_tokens"));
  EXPECT_THAT(refusal(seeded_request({kVocab}, 1)), HasSubstr("prompt token 100"));
  EXPECT_THAT(refusal(seeded_request({-1}, 1)), HasSubstr("prompt token -1"));
  EXPECT_THAT(refusal(seeded_request({1, 2}, 63)), HasSubstr("the context holds 64 tokens"));
  EngineConfig config = small_config();
  config.n_pages = 4;  // three of four tokens
  start(config);
  EXPECT_THAT(refusal(seeded_request({1, 2, 3}, 11)), HasSubstr("needs 4 pages"));
  Heard heard;
  add(seeded_request({1, 2, 3}, 10), heard);  // twelve tokens are stored, and the last one is not
  run_to_end();
  EXPECT_EQ(heard.last().finish, FinishReason::length);
}

TEST_F(EngineTest, AFullQueueIsAnAnswer) {
  std::vector<Heard> heard(13);
  for (size_t i = 0; i < 12; ++i) add(seeded_request({1, 2, 3}, 4), heard[i]);
  const Result<RequestId> id = engine_->add(seeded_request({1}, 1), hear(heard[12]));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::resource_exhausted);
  run_to_end();
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(heard[i].n_finishes, 1);
}

TEST_F(EngineTest, ASecondRequestReusesFullPagesAndNotItsLastToken) {
  Heard first;
  Heard second;
  const GenerateRequest request = seeded_request(counting_prompt(1, 8, kVocab), 2);
  add(request, first);
  run_to_end();
  add(request, second);
  run_to_end();
  EXPECT_EQ(first.last().cached_tokens, 0);
  EXPECT_EQ(second.last().cached_tokens, 4) << "the second page holds the last token";
  EXPECT_EQ(second.ids(), first.ids());
}

TEST_F(EngineTest, ASecondTurnReusesPagesOfGeneratedTokens) {
  Heard first;
  GenerateRequest request = seeded_request(counting_prompt(1, 6, kVocab), 12);
  add(request, first);
  run_to_end();
  GenerateRequest turn = request;
  for (const Token token : first.ids()) turn.prompt.push_back(token);
  turn.prompt.push_back(42);
  Heard second;
  add(turn, second);
  run_to_end();
  // 17 tokens were computed: four pages.
  EXPECT_EQ(second.last().cached_tokens, 16);
  EXPECT_EQ(second.ids(), right(turn));
}

TEST_F(EngineTest, TenantsDoNotShare) {
  Heard first;
  Heard second;
  GenerateRequest request = seeded_request(counting_prompt(1, 20, kVocab), 2);
  add(request, first);
  run_to_end();
  request.tenant[3] = 1;
  add(request, second);
  run_to_end();
  EXPECT_EQ(second.last().cached_tokens, 0);
}

TEST_F(EngineTest, WithoutThePrefixCacheNothingIsReused) {
  EngineConfig config = small_config();
  config.prefix_cache = false;
  start(config);
  Heard first;
  Heard second;
  const GenerateRequest request = seeded_request(counting_prompt(1, 20, kVocab), 2);
  add(request, first);
  run_to_end();
  add(request, second);
  run_to_end();
  EXPECT_EQ(second.last().cached_tokens, 0);
  EXPECT_EQ(engine_->stats().pages_free, engine_->stats().pages_total);
}

// A long prompt beside a request that decodes: the latter gets a token every step.
TEST_F(EngineTest, ALongPromptHoldsNobody) {
  Heard decoding;
  Heard prompting;
  add(seeded_request({1, 2}, 30), decoding);
  step();
  add(seeded_request(counting_prompt(3, 60, kVocab), 2), prompting);
  for (size_t n = 2; n <= 4; ++n) {
    step();
    EXPECT_EQ(decoding.tokens.size(), n);
    EXPECT_EQ(prompting.tokens.size(), 0U);
  }
  step();
  EXPECT_EQ(prompting.tokens.size(), 1U);
  run_to_end();
}

TEST_F(EngineTest, AbortEndsARequestWhereverItIs) {
  for (int steps = 0; steps <= 12; ++steps) {
    start(small_config());
    expect_abort_after(steps);
  }
}

TEST_F(EngineTest, UnknownIdsAreNoAbort) {
  engine_->abort(RequestId{77});
  EXPECT_TRUE(engine_->is_idle());
}

TEST_F(EngineTest, UnderPressureTheLatestGivesWayAndAllAnswersAreRight) {
  EngineConfig config = small_config();
  config.n_pages = 11;  // 40 tokens for 4 requests of up to 30
  start(config);
  std::vector<Heard> heard(4);
  std::vector<GenerateRequest> requests;
  for (Token i = 0; i < 4; ++i) {
    requests.push_back(seeded_request(counting_prompt(10 * i, 6, kVocab), 24));
    add(requests.back(), heard[static_cast<size_t>(i)]);
  }
  run_to_end();
  EXPECT_GT(engine_->stats().preemptions, 0U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(heard[i].ids(), right(requests[i])) << i;
  expect_all_pages_back();
}

// Two requests; a fault is planted for the first in the step that gives its third token.
class EngineFaultTest : public EngineTest {
 protected:
  void run_with(const std::function<void()>& plant) {
    victim_request_ = seeded_request(counting_prompt(1, 6, kVocab), 10);
    neighbour_request_ = seeded_request(counting_prompt(50, 6, kVocab), 10);
    add(victim_request_, victim_);
    add(neighbour_request_, neighbour_);
    step();
    step();
    plant();
    run_to_end();
    EXPECT_EQ(neighbour_.ids(), right(neighbour_request_)) << "a neighbour's bytes changed";
    EXPECT_EQ(victim_.last().finish, FinishReason::failed);
    EXPECT_EQ(victim_.n_finishes, 1);
    EXPECT_EQ(victim_.tokens.size(), 2U) << "a token of the failed step got out";
    EXPECT_EQ(engine_->stats().requests_failed, 1U);
  }

  GenerateRequest victim_request_;
  GenerateRequest neighbour_request_;
  Heard victim_;
  Heard neighbour_;
};

TEST_F(EngineFaultTest, AStaleTagStopsTheRowAndQuarantinesThePage) {
  run_with(
      [&] { executor_->spoil_plan = [](StepPlan& plan) { plan.rows[0].pages[0].tag += 1000; }; });
  EXPECT_EQ(victim_.last().failure, FailureKind::integrity);
  EXPECT_THAT(victim_.last().error->message, HasSubstr("before any unverified token was sent"));
  EXPECT_EQ(engine_->stats().integrity_failed, 1U);
  expect_all_pages_back(1);
}

TEST_F(EngineFaultTest, APageOfSomebodyElseIsNotRead) {
  run_with([&] {
    executor_->spoil_plan = [](StepPlan& plan) {
      plan.rows[0].pages[0].page = plan.rows[1].pages[0].page;
    };
  });
  EXPECT_EQ(victim_.last().failure, FailureKind::integrity);
  // Its holder finished with it, and then it was kept out of circulation.
  expect_all_pages_back(1);
}

TEST_F(EngineFaultTest, ThePagesOfABadRowAreNotPublished) {
  run_with([&] {
    executor_->spoil_result = [](StepResult& result) {
      result.rows[0].verdict = RowVerdict::bad_logits;
      result.rows[0].tokens.clear();
    };
  });
  EXPECT_EQ(victim_.last().failure, FailureKind::numerical);
  Heard again;
  add(victim_request_, again);
  run_to_end();
  EXPECT_EQ(again.last().cached_tokens, 0);
  EXPECT_EQ(again.ids(), right(victim_request_));
  expect_all_pages_back();
}

TEST_F(EngineFaultTest, ATokenOutsideTheVocabularyIsNotSent) {
  run_with([&] {
    executor_->spoil_result = [](StepResult& result) { result.rows[0].tokens[0].token = kVocab; };
  });
  EXPECT_EQ(victim_.last().failure, FailureKind::numerical);
}

TEST_F(EngineFaultTest, AResultForAnotherNonceIsNotSent) {
  run_with(
      [&] { executor_->spoil_result = [](StepResult& result) { result.rows[0].nonce ^= 1; }; });
  EXPECT_EQ(victim_.last().failure, FailureKind::integrity);
}

TEST_F(EngineFaultTest, ADeadEndFailsTheRequestAlone) {
  run_with([&] {
    executor_->spoil_plan = [](StepPlan& plan) { plan.rows[0].sampler.mask.assign(2, 0); };
  });
  EXPECT_EQ(victim_.last().failure, FailureKind::dead_end);
}

TEST_F(EngineTest, AStepWithAnotherHeaderGivesNoToken) {
  Heard heard;
  add(seeded_request({1, 2, 3}, 4), heard);
  executor_->spoil_header = [](StepHeader& header) { header.hash ^= 1; };
  run_to_end();
  EXPECT_EQ(heard.last().failure, FailureKind::integrity);
  EXPECT_TRUE(heard.tokens.empty());
}

TEST_F(EngineTest, SwappedResultsReachNobody) {
  std::vector<Heard> heard(2);
  add(seeded_request({1, 2, 3}, 4), heard[0]);
  add(seeded_request({4, 5, 6}, 4), heard[1]);
  executor_->spoil_result = [](StepResult& result) { std::swap(result.rows[0], result.rows[1]); };
  run_to_end();
  for (const Heard& one : heard) {
    EXPECT_EQ(one.last().failure, FailureKind::integrity);
    EXPECT_TRUE(one.tokens.empty());
  }
}

// A step is submitted before the tokens of the one before it are read.
class EngineOverlapTest : public EngineTest {
 protected:
  // Counts what is open, and what it was asked to compute.
  class WatchingExecutor final : public ForwardingExecutor {
   public:
    using ForwardingExecutor::ForwardingExecutor;
    Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override {
      most_open = std::max(most_open, ++open);
      for (const StepRow& row : plan.rows) {
        ++rows;
        if (row.tokens.front().literal < 0) ++rows_by_ticket;
      }
      return ForwardingExecutor::submit(plan, header);
    }
    StepResult collect_step(TicketId ticket) override {
      --open;
      return ForwardingExecutor::collect_step(ticket);
    }
    int open = 0, most_open = 0, rows = 0, rows_by_ticket = 0;
  };

  void start_overlapped(EngineConfig config) {
    config.overlap = Overlap::on;
    engine_.reset();
    sim_ = std::make_unique<SimExecutor>(kModel, executor_limits(config), no_salt,
                                         SimCompletion::when_asked);
    executor_ = std::make_unique<FaultyExecutor>(*sim_);
    watch_ = std::make_unique<WatchingExecutor>(*executor_);
    engine_ = std::make_unique<Engine>(config, *watch_, clock_, log_);
  }
  void SetUp() override { start_overlapped(small_config()); }
  void TearDown() override { engine_.reset(); }

  std::unique_ptr<WatchingExecutor> watch_;
};

TEST_F(EngineOverlapTest, OneStepAheadAndNoneTooMany) {
  const GenerateRequest request = seeded_request({1, 2, 3}, 6);
  Heard heard;
  add(request, heard);
  step();
  EXPECT_TRUE(heard.tokens.empty()) << "the first step was read before the second was submitted";
  run_to_end();
  EXPECT_EQ(heard.ids(), right(request));
  EXPECT_EQ(watch_->most_open, 2);
  EXPECT_EQ(watch_->rows, 6) << "a step past max_new_tokens";
  EXPECT_EQ(watch_->rows_by_ticket, 5);
  EXPECT_EQ(watch_->open, 0);
  expect_all_pages_back();
}

TEST_F(EngineOverlapTest, AStopTokenWastesOneRowAndGivesItsPageBack) {
  GenerateRequest request = seeded_request({1, 2, 3}, 20);
  request.stop_tokens = {right(request)[5]};
  Heard heard;
  Heard other;
  const GenerateRequest longer = seeded_request({9, 8}, 20);
  add(request, heard);
  add(longer, other);
  run_to_end();
  EXPECT_EQ(heard.last().finish, FinishReason::stop);
  EXPECT_EQ(heard.ids(), right(request));
  EXPECT_EQ(other.ids(), right(longer));
  EXPECT_EQ(watch_->rows, 6 + 1 + 20);
  expect_all_pages_back();
}

TEST_F(EngineOverlapTest, AbortEndsARequestWhereverItIs) {
  for (int steps = 0; steps <= 13; ++steps) {
    start_overlapped(small_config());
    expect_abort_after(steps);
  }
}

TEST_F(EngineOverlapTest, UnderPressureAllAnswersAreRight) {
  EngineConfig config = small_config();
  config.n_pages = 11;  // 40 tokens for 4 requests of up to 30
  start_overlapped(config);
  std::vector<Heard> heard(4);
  std::vector<GenerateRequest> requests;
  for (Token i = 0; i < 4; ++i) {
    requests.push_back(seeded_request(counting_prompt(10 * i, 6, kVocab), 24));
    add(requests.back(), heard[static_cast<size_t>(i)]);
  }
  run_to_end();
  EXPECT_GT(engine_->stats().preemptions, 0U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(heard[i].ids(), right(requests[i])) << i;
  expect_all_pages_back();
}

// The step after a bad one is under way: it must not get out either.
TEST_F(EngineOverlapTest, AFailedRowStopsTheRequestAndTheStepThatFollowedIt) {
  for (const bool at_executor : {true, false}) {
    start_overlapped(small_config());
    Heard victim;
    Heard neighbour;
    const GenerateRequest one = seeded_request(counting_prompt(1, 6, kVocab), 10);
    const GenerateRequest other = seeded_request(counting_prompt(50, 6, kVocab), 10);
    add(one, victim);
    add(other, neighbour);
    for (int i = 0; i < 3; ++i) step();  // two tokens are out, the third is being chosen
    if (at_executor) {
      executor_->spoil_plan = [](StepPlan& plan) { plan.rows[0].sampler.mask.assign(2, 0); };
    } else {
      executor_->spoil_result = [](StepResult& result) {
        result.rows[0].verdict = RowVerdict::bad_logits;
        result.rows[0].tokens.clear();
      };
    }
    const size_t before = victim.tokens.size();
    run_to_end();
    EXPECT_EQ(victim.last().finish, FinishReason::failed);
    EXPECT_EQ(victim.tokens.size(), before + (at_executor ? 1 : 0));
    EXPECT_EQ(neighbour.ids(), right(other));
    EXPECT_EQ(engine_->stats().integrity_failed, 0U);
    expect_all_pages_back();
  }
}

TEST_F(EngineOverlapTest, TheEndOfTheEngineReadsWhatIsOpen) {
  Heard heard;
  add(seeded_request({1, 2, 3}, 40), heard);
  step();
  EXPECT_EQ(watch_->open, 1);
  engine_.reset();
  EXPECT_EQ(heard.last().finish, FinishReason::aborted);
  EXPECT_EQ(watch_->open, 0);
}

TEST_F(EngineTest, FlushIsRefusedWhileRequestsRun) {
  Heard heard;
  add(seeded_request({1, 2, 3}, 4), heard);
  step();
  EXPECT_FALSE(engine_->flush_cache());
  run_to_end();
  EXPECT_TRUE(engine_->flush_cache());
}

TEST_F(EngineTest, TheEndOfTheEngineAbortsWhatIsLeft) {
  Heard running;
  Heard queued;
  add(seeded_request({1, 2, 3}, 40), running);
  step();
  add(seeded_request({1, 2, 3}, 40), queued);
  engine_.reset();
  EXPECT_EQ(running.last().finish, FinishReason::aborted);
  EXPECT_EQ(queued.last().finish, FinishReason::aborted);
}

TEST_F(EngineTest, TheRateIsOfTheLastSecond) {
  Heard heard;
  add(seeded_request({1, 2, 3}, 40), heard);
  for (int i = 0; i < 30; ++i) {
    clock_.advance_us(50'000);  // twenty a second
    step();
  }
  EXPECT_NEAR(engine_->stats().generation_tokens_per_second, 20, 2);
  clock_.advance_us(10'000'000);
  EXPECT_EQ(engine_->stats().generation_tokens_per_second, 0);
  run_to_end();
}

}  // namespace
}  // namespace quire
