#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"
#include "sim/campaign.h"
#include "sim/page_surgeon.h"
#include "sim/shrink.h"
#include "sim/simulation.h"
#include "sim/workload.h"

namespace quire::sim {
namespace {

// Enough that every path of the engine is met many times, in some seconds on one core.
constexpr uint64_t kSeeds = 6000;

TEST(Simulation, EverySeedAnswersRight) {
  const CampaignResult result = run_seeds(1, kSeeds, 1);
  for (const FailedCase& failed : result.failed) {
    ADD_FAILURE() << failed.violation << "\n" << write_case(failed.smallest, failed.violation);
  }
  if (HasFailure()) return;
  EXPECT_EQ(result.seeds, kSeeds);
  EXPECT_EQ(result.total.false_alarms, 0U);
  // What must have happened, or the workload has stopped testing it.
  for (size_t i = 0; i < kReached; ++i) {
    const auto state = static_cast<Reached>(i);
    EXPECT_GT(result.total[state], kSeeds / 40) << name(state);
  }
  for (size_t i = 0; i < kPoints; ++i) {
    EXPECT_GT(result.total.points[i], kSeeds / 40) << name(static_cast<Point>(i));
  }
  std::printf("%llu events, %llu steps\n", static_cast<unsigned long long>(result.total.events),
              static_cast<unsigned long long>(result.total.engine_steps));
}

// A seed that nobody has seen; printed, so that a failure can be run again.
TEST(Simulation, AFreshSeedAnswersRight) {
  uint64_t seed = 0;
  ASSERT_TRUE(fill_secure_random(std::as_writable_bytes(std::span(&seed, 1))).ok());
  std::printf("fresh seed %llu\n", static_cast<unsigned long long>(seed));
  EXPECT_EQ(run_twice({.seed = seed}, ServedText()).violation, "");
}

TEST(Simulation, CasesThatFailedOnceAreRight) {
  const ServedText text;
  size_t n = 0;
  const std::filesystem::path folder = QUIRE_SOURCE_DIR "/tests/sim/cases";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const Result<std::string> read = read_text_file(file.path().string(), size_t{1} << 20);
    ASSERT_TRUE(read.ok()) << file.path();
    const Result<Case> kept = read_case(read.value());
    ASSERT_TRUE(kept.ok()) << file.path() << ": " << kept.error().message;
    EXPECT_EQ(run_twice(kept.value(), text).violation, "") << file.path();
    ++n;
  }
  EXPECT_GT(n, 0U);
}

// Each fault is found, hurts nobody who did not hold what was damaged, and no wrong token is sent.
TEST(Faults, EachIsFoundInTime) {
  IntegrityConfig checks = integrity_config(IntegrityLevel::full);
  checks.audit_steps = 4;
  for (size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const FaultTally tally = run_fault({.fault = fault, .checks = checks}, 1, 25);
    EXPECT_EQ(tally.injected, 25U) << name(fault);
    EXPECT_EQ(tally.detected, tally.injected) << name(fault);
    EXPECT_EQ(tally.collateral, 0U) << name(fault);
    EXPECT_EQ(tally.wrong_tokens, 0U) << name(fault);
    for (const FailedCase& failed : tally.failed) {
      ADD_FAILURE() << name(fault) << " seed " << failed.smallest.seed << ": " << failed.violation;
    }
  }
}

// With a retry nobody notices: those who would have failed have their whole right answer. What is
// no number is not retried, nor is content that was damaged when tokens had been sent.
TEST(Faults, ARetryGivesTheRightAnswer) {
  IntegrityConfig checks = integrity_config(IntegrityLevel::full);
  checks.audit_steps = 4;
  for (const Fault fault :
       {Fault::f05, Fault::f10, Fault::f12, Fault::f13, Fault::f14, Fault::f28, Fault::f29}) {
    const FaultTally tally = run_fault({.fault = fault, .checks = checks, .retries = 2}, 1, 25);
    EXPECT_EQ(tally.injected, 25U) << name(fault);
    EXPECT_EQ(tally.detected, tally.injected) << name(fault);
    EXPECT_EQ(tally.victims, 0U) << name(fault);
    EXPECT_EQ(tally.collateral, 0U) << name(fault);
    EXPECT_EQ(tally.wrong_tokens, 0U) << name(fault);
    for (const FailedCase& failed : tally.failed) {
      ADD_FAILURE() << name(fault) << " seed " << failed.smallest.seed << ": " << failed.violation;
    }
  }
}

// A row that names another request's page costs its own request alone, whatever that leaves for.
// Nobody loses a lease by it: neither the page's owner, nor those with a row of the same step.
TEST(Faults, ARowThatNamesAnothersPageCostsItsOwnRequestAlone) {
  constexpr SimModel kModel{.vocab_size = 40, .seed = 3};
  for (const bool is_aborted : {false, true}) {
    const EngineConfig config{.n_pages = 33,
                              .page_tokens = 4,
                              .vocab_size = kModel.vocab_size,
                              .context_tokens = 64,
                              .running_requests_max = 4,
                              .queued_requests_max = 4,
                              .chunked_prefill_tokens = 64,
                              .integrity = integrity_config(IntegrityLevel::full)};
    SimExecutor cells(kModel, executor_limits(config), [](RequestId) { return uint64_t{0}; });
    ManualClock clock;
    Log log{LogLevel::silent, LogFormat::text};
    Heard first;
    Heard second;
    const GenerateRequest owner = seeded_request(counting_prompt(1, 6, kModel.vocab_size), 10);
    Engine engine(config, cells, clock, log);
    PageSurgeon surgeon(engine);
    ASSERT_TRUE(engine.add(owner, hear(first)).ok());
    const GenerateRequest other = seeded_request(counting_prompt(2, 6, kModel.vocab_size), 10);
    ASSERT_TRUE(engine.add(other, hear(second)).ok());
    for (int i = 0; i < 2; ++i) engine.step();
    ASSERT_EQ(surgeon.row(SlotId{0}).size(), 2U);
    surgeon.write_row(SlotId{1}, 0, surgeon.row(SlotId{0})[0]);
    if (is_aborted) engine.abort(RequestId{2});
    for (int i = 0; i < 100 && !engine.is_idle(); ++i) {
      engine.step();
      const Status audit = engine.audit();
      EXPECT_TRUE(audit.ok()) << audit.error().message;
    }
    EXPECT_EQ(first.ids(), right_answer(kModel, 0, owner));
    EXPECT_EQ(second.last().finish, is_aborted ? FinishReason::aborted : FinishReason::failed);
    EXPECT_EQ(engine.stats().integrity_found[IntegrityCheck::places], 1U);
    EXPECT_EQ(engine.stats().integrity_found.total(), 1U);
    EXPECT_TRUE(engine.flush_cache());
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total);
  }
}

// They are faults: with no check at all, these send wrong tokens.
TEST(Faults, GoUnnoticedWithoutChecks) {
  const IntegrityConfig none = integrity_config(IntegrityLevel::off);
  for (const Fault fault : {Fault::f12, Fault::f14, Fault::f15, Fault::f16, Fault::f17}) {
    const FaultTally tally = run_fault({.fault = fault, .checks = none}, 1, 25);
    EXPECT_GT(tally.wrong_tokens, 0U) << name(fault);
  }
}

// The checker itself can see: a model whose reads are changed gives other answers.
TEST(Simulation, DifferentSeedsDiffer) {
  EXPECT_NE(run({.seed = 1}, ServedText()).hash, run({.seed = 2}, ServedText()).hash);
}

// Drafts are not built: a step that would verify some is refused.
TEST(Executor, RefusesMoreThanOneLogitRow) {
  const PlanLimits limits{.n_pages = 3,
                          .page_tokens = 4,
                          .rows_max = 1,
                          .tokens_max = 4,
                          .pages_max = 2,
                          .vocab_size = 40};
  SimExecutor executor({.vocab_size = 40}, limits, [](RequestId) { return uint64_t{0}; });
  StepPlan plan{.step = 1};
  plan.rows.push_back({.request = RequestId{1},
                       .tokens = {{.literal = 1}, {.literal = 2}},
                       .n_logits = 2,
                       .pages = {{PageId{1}, 1}}});
  const Result<TicketId> refused = executor.submit(plan, make_header(plan));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST(Workload, ARequestIsTheSameWithoutTheOthers) {
  const Workload whole = draw_workload({.seed = 7});
  const Workload less = draw_workload({.seed = 7, .left_out = {0, 2, 3}});
  ASSERT_EQ(whole.requests.size(), less.requests.size());
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    EXPECT_EQ(whole.requests[i].request.prompt, less.requests[i].request.prompt);
    EXPECT_EQ(whole.requests[i].arrives_us, less.requests[i].arrives_us);
    EXPECT_EQ(whole.requests[i].right, less.requests[i].right);
  }
}

TEST(Case, SurvivesItsFile) {
  Case kept{.seed = 0xfedcba9876543210U, .left_out = {1, 4, 9}};
  kept.without.add(Feature::overlap);
  kept.without.add(Feature::quarantines);
  const Result<Case> back = read_case(write_case(kept, "wrong token"));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back.value().seed, kept.seed);
  EXPECT_EQ(back.value().without, kept.without);
  EXPECT_EQ(back.value().left_out, kept.left_out);
  for (const char* bad : {"", "{}", "[1]", R"({"seed":-1,"without":[],"left_out":[]})",
                          R"({"seed":1,"without":["nothing"],"left_out":[]})",
                          R"({"seed":1,"without":[],"left_out":["a"]})"}) {
    EXPECT_FALSE(read_case(bad).ok()) << bad;
  }
}

// Fails whenever requests 3 and 11 both arrive and the run overlaps: what is left says just that.
TEST(Shrink, LeavesWhatTheFailureNeeds) {
  uint64_t seed = 1;
  while (!draw_workload({.seed = seed}).features.has(Feature::overlap) ||
         draw_workload({.seed = seed}).requests.size() < 20) {
    ++seed;
  }
  const auto fails = [](const Case& tried) {
    const auto is_out = [&](int32_t i) { return std::ranges::binary_search(tried.left_out, i); };
    return !is_out(3) && !is_out(11) && draw_workload(tried).features.has(Feature::overlap);
  };
  const Case smallest = shrink({.seed = seed}, fails);
  EXPECT_TRUE(fails(smallest));
  EXPECT_EQ(smallest.left_out.size(), draw_workload(smallest).requests.size() - 2);
  const Workload left = draw_workload(smallest);
  EXPECT_TRUE(left.features.has(Feature::overlap));
  for (int i = 0; i < kFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    EXPECT_EQ(left.features.has(feature), feature == Feature::overlap) << name(feature);
  }
}

}  // namespace
}  // namespace quire::sim
