// What an engine does about a finding: who is stopped, who begins again, what an operator sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/faulty_executor.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 100;
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

std::vector<Token> right(const GenerateRequest& request) {
  return right_answer(kModel, 0, request);
}

void spoil_first_tag(StepPlan& plan) { plan.rows[0].pages[0].tag += 1000; }

class ReactionTest : public testing::TestWithParam<Overlap> {
 protected:
  void start(int32_t retries, IntegrityLevel level = IntegrityLevel::tags) {
    engine_.reset();
    const EngineConfig config{.n_pages = 33,
                              .page_tokens = 4,
                              .vocab_size = kVocab,
                              .context_tokens = 64,
                              .running_requests_max = 4,
                              .queued_requests_max = 8,
                              .chunked_prefill_tokens = 16,
                              .overlap = GetParam(),
                              .integrity = integrity_config(level),
                              .integrity_retries = retries};
    const SimCompletion completion =
        GetParam() == Overlap::on ? SimCompletion::when_asked : SimCompletion::at_once;
    sim_ = std::make_unique<SimExecutor>(
        kModel, executor_limits(config), [](RequestId) { return uint64_t{0}; }, completion);
    executor_ = std::make_unique<FaultyExecutor>(*sim_);
    engine_ = std::make_unique<Engine>(config, *executor_, clock_, log_);
  }
  void TearDown() override { engine_.reset(); }

  void add(const GenerateRequest& request, Heard& heard) {
    CHECK(engine_->add(request, hear(heard)).ok());
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
  int n_events(IntegrityEventKind kind) {
    const std::vector<IntegrityEvent> events = engine_->integrity().events;
    return static_cast<int>(std::ranges::count(events, kind, &IntegrityEvent::kind));
  }
  // The content of each page changes, whoever holds it.
  void damage_all_pages() {
    for (int32_t p = 1; p < sim_->n_pages(); ++p) sim_->code({PageId{p}, 0}) ^= 1;
  }

  ManualClock clock_;
  Log log_{LogLevel::silent, LogFormat::text};
  std::unique_ptr<SimExecutor> sim_;
  std::unique_ptr<FaultyExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  const GenerateRequest one_ = seeded_request(counting_prompt(1, 6, kVocab), 10);
  const GenerateRequest other_ = seeded_request(counting_prompt(50, 6, kVocab), 10);
};

INSTANTIATE_TEST_SUITE_P(, ReactionTest, testing::Values(Overlap::off, Overlap::on),
                         [](const auto& each) {
                           return each.param == Overlap::on ? "Overlapped" : "InTurn";
                         });

// Whenever the fault comes, the client gets the whole right answer, and no token twice.
TEST_P(ReactionTest, ARetryGoesOnAfterTheTokensThatWereSent) {
  for (int steps = 0; steps < 9; ++steps) {
    start(1);
    Heard heard;
    Heard neighbour;
    add(one_, heard);
    add(other_, neighbour);
    for (int i = 0; i < steps; ++i) step();
    executor_->spoil_plan = spoil_first_tag;
    run_to_end();
    EXPECT_EQ(heard.ids(), right(one_)) << "after " << steps << " steps";
    EXPECT_EQ(heard.n_finishes, 1);
    EXPECT_EQ(heard.last().finish, FinishReason::length);
    EXPECT_EQ(neighbour.ids(), right(other_));
    EXPECT_EQ(engine_->stats().requests_failed, 0U);
    EXPECT_EQ(engine_->stats().integrity_retries, 1U);
    EXPECT_EQ(n_events(IntegrityEventKind::retried), 1);
    EXPECT_EQ(n_events(IntegrityEventKind::stopped), 0);
  }
}

// What the tags cannot show of a row, its result can.
TEST_P(ReactionTest, EveryKindOfFindingIsRetried) {
  const std::vector<std::function<void(StepResult&)>> spoilers = {
      [](StepResult& result) { result.rows[0].nonce ^= 1; },
      [](StepResult& result) { result.rows[0].pages_checked = 0; },
      [](StepResult& result) {
        result.rows[0].verdict = RowVerdict::stale_write;
        result.rows[0].tokens.clear();
      },
      [](StepResult& result) { std::swap(result.rows[0], result.rows[1]); },
  };
  for (const auto& spoil : spoilers) {
    start(1);
    Heard heard;
    Heard neighbour;
    add(one_, heard);
    add(other_, neighbour);
    for (int i = 0; i < 3; ++i) step();
    executor_->spoil_result = spoil;
    run_to_end();
    EXPECT_EQ(heard.ids(), right(one_));
    EXPECT_EQ(neighbour.ids(), right(other_));
    EXPECT_GE(engine_->stats().integrity_retries, 1U);
  }
}

TEST_P(ReactionTest, AfterTheLastRetryTheRequestEnds) {
  start(1);
  Heard heard;
  add(one_, heard);
  step();
  executor_->spoil_plan = spoil_first_tag;
  while (engine_->stats().integrity_retries == 0) step();
  executor_->spoil_plan = spoil_first_tag;
  run_to_end();
  EXPECT_EQ(heard.n_finishes, 1);
  EXPECT_EQ(heard.last().failure, FailureKind::integrity);
  EXPECT_EQ(engine_->stats().integrity_retries, 1U);
}

// A model's fault would come back.
TEST_P(ReactionTest, OnlyFindingsAboutPagesAreRetried) {
  start(3);
  Heard heard;
  add(one_, heard);
  step();
  executor_->spoil_result = [](StepResult& result) {
    result.rows[0].verdict = RowVerdict::bad_logits;
    result.rows[0].tokens.clear();
  };
  run_to_end();
  EXPECT_EQ(heard.last().failure, FailureKind::numerical);
  EXPECT_EQ(engine_->stats().integrity_retries, 0U);
}

// Tokens that damaged content may have made cannot be taken back: then the request ends.
TEST_P(ReactionTest, DamagedContentIsRetriedOnlyBeforeTheFirstToken) {
  const GenerateRequest long_prompt = seeded_request(counting_prompt(1, 40, kVocab), 6);
  for (const bool has_answered : {false, true}) {
    start(1);
    Heard heard;
    add(long_prompt, heard);
    // Three chunks of 16, 16 and 8 tokens; overlapped, a step's pages are sealed a step later.
    for (int i = 0; i < 2; ++i) step();
    while (has_answered && heard.tokens.size() < 2) step();
    ASSERT_EQ(heard.tokens.empty(), !has_answered);
    damage_all_pages();
    engine_->verify_all();
    run_to_end();
    EXPECT_EQ(heard.n_finishes, 1);
    if (has_answered) {
      EXPECT_EQ(heard.last().failure, FailureKind::integrity);
    } else {
      EXPECT_EQ(heard.ids(), right(long_prompt));
    }
    EXPECT_EQ(engine_->stats().integrity_retries, has_answered ? 0U : 1U);
  }
}

// A retry does not meet again what it met the first time.
TEST_P(ReactionTest, ARetryComputesItsPrefixItself) {
  start(1);
  const GenerateRequest request = seeded_request(counting_prompt(1, 20, kVocab), 6);
  Heard first;
  add(request, first);
  run_to_end();
  Heard second;
  add(request, second);
  executor_->spoil_plan = spoil_first_tag;
  run_to_end();
  EXPECT_EQ(second.last().cached_tokens, 16);
  EXPECT_EQ(second.ids(), right(request));
  EXPECT_EQ(engine_->stats().integrity_retries, 1U);
  EXPECT_EQ(engine_->stats().pages_quarantined, 1);
}

// Nor when no page of it was at fault, and the index has all of them still.
TEST_P(ReactionTest, ARetryTakesNothingFromAnIndexThatIsWhole) {
  start(1);
  const GenerateRequest request = seeded_request(counting_prompt(1, 20, kVocab), 6);
  Heard first;
  add(request, first);
  run_to_end();
  Heard second;
  add(request, second);
  executor_->spoil_result = [](StepResult& result) { result.rows[0].nonce ^= 1; };
  while (engine_->stats().integrity_retries == 0) step();
  int32_t begins = -1;
  executor_->spoil_plan = [&](StepPlan& plan) { begins = plan.rows[0].first_position; };
  run_to_end();
  EXPECT_EQ(begins, 0);
  EXPECT_EQ(second.last().cached_tokens, 16);
  EXPECT_EQ(second.ids(), right(request));
  EXPECT_EQ(engine_->stats().pages_quarantined, 0);
}

// A page was met under another life: whoever shares it has all its pages verified, at every level.
TEST_P(ReactionTest, TheSharersOfAQuarantinedPageAreVerified) {
  for (const bool is_damaged : {false, true}) {
    start(0);
    const GenerateRequest request = seeded_request(counting_prompt(1, 20, kVocab), 12);
    Heard first;
    add(request, first);
    run_to_end();
    std::vector<Heard> sharers(2);
    for (Heard& heard : sharers) add(request, heard);
    for (int i = 0; i < 3; ++i) step();
    const size_t sent = sharers[1].tokens.size();
    if (is_damaged) damage_all_pages();
    executor_->spoil_plan = [](StepPlan& plan) { plan.rows[0].pages[0].tag += 1000; };
    run_to_end();
    EXPECT_EQ(sharers[0].last().failure, FailureKind::integrity);
    if (is_damaged) {
      EXPECT_EQ(sharers[1].last().failure, FailureKind::integrity);
      // What was computed before the finding has left; overlapped, that is one step more.
      EXPECT_LE(sharers[1].tokens.size(), sent + (GetParam() == Overlap::on ? 1 : 0));
    } else {
      EXPECT_EQ(sharers[1].ids(), right(request));
    }
  }
}

TEST_P(ReactionTest, AnIdleEngineScrubsAndAudits) {
  start(0, IntegrityLevel::full);
  Heard heard;
  add(seeded_request(counting_prompt(1, 20, kVocab), 4), heard);
  run_to_end();
  EXPECT_FALSE(engine_->step());
  const EngineStats before = engine_->stats();
  for (int i = 0; i < 200; ++i) {
    clock_.advance_us(60'000);
    engine_->look_after_idle();
  }
  const EngineStats after = engine_->stats();
  // Twelve seconds: a scrub every second look, an audit every ten seconds.
  EXPECT_GE(after.integrity_looked[IntegrityCheck::seals],
            before.integrity_looked[IntegrityCheck::seals] + 90);
  EXPECT_EQ(after.integrity_looked[IntegrityCheck::audit],
            before.integrity_looked[IntegrityCheck::audit] + 1);
  EXPECT_EQ(after.integrity_failed, 0U);
  damage_all_pages();
  for (int i = 0; i < 20; ++i) {
    clock_.advance_us(100'000);
    engine_->look_after_idle();
  }
  EXPECT_EQ(engine_->stats().pages_cached, 0);
  EXPECT_EQ(engine_->stats().pages_quarantined, before.pages_cached);
}

TEST_P(ReactionTest, AnOperatorSeesWhatWasFoundAndGivesThePageBack) {
  start(0);
  Heard heard;
  add(one_, heard);
  step();
  executor_->spoil_plan = spoil_first_tag;
  run_to_end();
  const IntegrityReport report = engine_->integrity();
  ASSERT_EQ(report.quarantined.size(), 1U);
  EXPECT_FALSE(report.quarantined[0].is_held);
  const PageId page = report.quarantined[0].page;
  ASSERT_EQ(report.events.size(), 3U);
  EXPECT_EQ(report.events[0].kind, IntegrityEventKind::found);
  EXPECT_EQ(report.events[0].check, IntegrityCheck::tags);
  EXPECT_EQ(report.events[0].page, page);
  EXPECT_EQ(report.events[0].request, RequestId{1});
  EXPECT_EQ(report.events[1].kind, IntegrityEventKind::quarantined);
  EXPECT_EQ(report.events[2].kind, IntegrityEventKind::stopped);
  EXPECT_EQ(report.pages[static_cast<size_t>(PageState::quarantined)], 1);

  EXPECT_EQ(engine_->release_page(PageId{99}).error().code, ErrorCode::invalid_argument);
  const PageId another{page.value == 1 ? 2 : 1};
  EXPECT_EQ(engine_->release_page(another).error().code, ErrorCode::corruption);
  EXPECT_TRUE(engine_->release_page(page).ok());
  EXPECT_EQ(engine_->stats().pages_quarantined, 0);
  EXPECT_TRUE(engine_->audit().ok());
  EXPECT_EQ(n_events(IntegrityEventKind::released), 1);
}

TEST_P(ReactionTest, TheLastEventsAreKept) {
  IntegrityLog events(clock_, log_);
  for (uint64_t i = 1; i <= IntegrityLog::kKept + 3; ++i) {
    clock_.advance_us(1);
    events.begin_step(i);
    events.found(IntegrityCheck::tags, "it", PageId{1});
  }
  const std::vector<IntegrityEvent> last = events.last();
  ASSERT_EQ(last.size(), IntegrityLog::kKept);
  for (size_t i = 0; i < last.size(); ++i) {
    EXPECT_EQ(last[i].number, i + 4);
    EXPECT_EQ(last[i].step, i + 4);
  }
  EXPECT_EQ(events.found()[IntegrityCheck::tags], IntegrityLog::kKept + 3);
}

TEST_P(ReactionTest, CoverageIsWhatTheStepsAskFor) {
  start(0);
  Heard heard;
  add(one_, heard);
  run_to_end();
  EXPECT_GT(engine_->stats().integrity_expected, 0U);
  EXPECT_EQ(engine_->stats().integrity_checked, engine_->stats().integrity_expected);
  start(0, IntegrityLevel::off);
  Heard unchecked;
  add(one_, unchecked);
  run_to_end();
  EXPECT_EQ(engine_->stats().integrity_expected, 0U);
}

}  // namespace
}  // namespace quire
