#include "engine/engine_desk.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/clock.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 100;
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

class EngineDeskTest : public testing::Test {
 protected:
  // Submits a request and drives it to its first token.
  RequestId submit_running() {
    const Result<RequestId> id =
        desk_.submit(seeded_request(counting_prompt(1, 6, kVocab), 40), hear(heard_));
    EXPECT_TRUE(id.ok());
    for (int i = 0; i < 100 && heard_.tokens.empty(); ++i) desk_.turn();
    EXPECT_FALSE(heard_.tokens.empty());
    EXPECT_FALSE(desk_.is_idle());
    return id.value();
  }

  const EngineConfig config_ = small_engine(kVocab);
  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  SimExecutor executor_{kModel, executor_limits(config_), [](RequestId) { return uint64_t{0}; }};
  Heard heard_;
  EngineDesk desk_{config_, executor_, clock_, log_};
};

// An operator's work between the end of the last request and the end of the turn sees a desk that
// is not idle: what waits for idleness and then reads the counters finds that end in them.
TEST_F(EngineDeskTest, IdleIsToldOnlyWhenTheCountersHaveTheLastEnd) {
  const RequestId id = submit_running();
  desk_.abort(id);
  bool asked = false;
  ASSERT_TRUE(desk_.ask([&](Engine&) {
    asked = true;
    EXPECT_EQ(heard_.last().finish, FinishReason::aborted);
    EXPECT_EQ(desk_.stats().requests_aborted, 0U);
    EXPECT_FALSE(desk_.is_idle());
  }));
  desk_.turn();
  EXPECT_TRUE(asked);
  EXPECT_EQ(desk_.stats().requests_aborted, 1U);
  EXPECT_TRUE(desk_.is_idle());
}

// The room of a request that ended is free at once, before the counters tell of it.
TEST_F(EngineDeskTest, RoomComesBackWithTheLastOutput) {
  const RequestId id = submit_running();
  std::vector<Heard> waiting(7);
  for (Heard& heard : waiting) {
    ASSERT_TRUE(desk_.submit(seeded_request(counting_prompt(2, 6, kVocab), 3), hear(heard)).ok());
  }
  Heard late;
  const auto submit_late = [&] {
    return desk_.submit(seeded_request(counting_prompt(3, 6, kVocab), 3), hear(late));
  };
  EXPECT_EQ(submit_late().error().code, ErrorCode::resource_exhausted);
  desk_.abort(id);
  ASSERT_TRUE(desk_.ask([&](Engine&) { EXPECT_TRUE(submit_late().ok()); }));
  for (int i = 0; i < 100 && !desk_.is_idle(); ++i) desk_.turn();
  EXPECT_TRUE(desk_.is_idle());
  ASSERT_EQ(late.n_finishes, 1);
  EXPECT_EQ(late.last().finish, FinishReason::length);
}

}  // namespace
}  // namespace quire
