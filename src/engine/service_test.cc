#include "engine/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 100;
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

EngineConfig small_config() { return small_engine(kVocab); }

GenerateRequest request_of(Token first, int32_t max_new_tokens) {
  return {.prompt = counting_prompt(first, 6, kVocab), .max_new_tokens = max_new_tokens};
}

// What one request was told, for a thread that waits for its end.
class Mailbox {
 public:
  void put(RequestOutput output) {
    const std::lock_guard lock(mutex_);
    for (GeneratedToken& token : output.tokens) ids_.push_back(token.token);
    if (output.finish) finish_ = output.finish;
    changed_.notify_all();
  }
  FinishReason wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_.has_value(); });
    return *finish_;
  }
  void wait_for_token() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finish_.has_value() || !ids_.empty(); });
  }
  std::vector<Token> ids() const {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Token> ids_;
  std::optional<FinishReason> finish_;
};

class MailSink final : public OutputSink {
 public:
  explicit MailSink(Mailbox& to) : to_(to) {}
  void on_output(RequestOutput output) override { to_.put(std::move(output)); }

 private:
  Mailbox& to_;
};

std::unique_ptr<OutputSink> mail(Mailbox& to) { return std::make_unique<MailSink>(to); }

// Holds the engine's thread inside a step until told to go on.
class Gate final : public OutputSink {
 public:
  Gate(std::atomic<bool>& open, std::atomic<bool>& reached) : open_(open), reached_(reached) {}
  void on_output(RequestOutput) override {
    reached_ = true;
    while (!open_) std::this_thread::yield();
  }

 private:
  std::atomic<bool>& open_;
  std::atomic<bool>& reached_;
};

class ServiceTest : public testing::Test {
 protected:
  void start(const EngineConfig& config) {
    service_.reset();
    executor_ = std::make_unique<SimExecutor>(kModel, executor_limits(config),
                                              [](RequestId) { return uint64_t{0}; });
    service_ = std::make_unique<EngineService>(config, *executor_, clock_, log_);
  }
  void SetUp() override { start(small_config()); }
  void wait_until_idle() {
    while (!service_->is_idle()) std::this_thread::yield();
  }

  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  std::unique_ptr<SimExecutor> executor_;
  std::unique_ptr<EngineService> service_;
};

TEST_F(ServiceTest, ARequestIsAnswered) {
  const GenerateRequest request = request_of(1, 9);
  Mailbox box;
  ASSERT_TRUE(service_->submit(request, mail(box)).ok());
  EXPECT_EQ(box.wait(), FinishReason::length);
  EXPECT_EQ(box.ids(), right_answer(kModel, 0, request));
  wait_until_idle();
  EXPECT_TRUE(service_->audit().ok());
}

TEST_F(ServiceTest, WhatCanNeverFitIsRefusedInTheCallersThread) {
  Mailbox box;
  const Result<RequestId> id = service_->submit(request_of(1, 1000), mail(box));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(service_->is_idle());
}

TEST_F(ServiceTest, FullIsAnAnswerAndRoomComesBack) {
  std::atomic<bool> open = false;
  std::atomic<bool> reached = false;
  ASSERT_TRUE(service_->submit(request_of(1, 1), std::make_unique<Gate>(open, reached)).ok());
  while (!reached) std::this_thread::yield();
  std::vector<Mailbox> boxes(8);
  for (size_t i = 0; i < 7; ++i) {
    ASSERT_TRUE(service_->submit(request_of(2, 3), mail(boxes[i])).ok()) << i;
  }
  const Result<RequestId> refused = service_->submit(request_of(2, 3), mail(boxes[7]));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  open = true;
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(boxes[i].wait(), FinishReason::length);
  wait_until_idle();
  EXPECT_TRUE(service_->submit(request_of(2, 3), mail(boxes[7])).ok());
  EXPECT_EQ(boxes[7].wait(), FinishReason::length);
}

// Nobody asks for anything: the pages are looked at all the same.
TEST_F(ServiceTest, AnIdleServiceLooksAfterItsPages) {
  EngineConfig config = small_config();
  config.integrity = integrity_config(IntegrityLevel::full);
  start(config);
  Mailbox box;
  ASSERT_TRUE(service_->submit(request_of(1, 9), mail(box)).ok());
  EXPECT_EQ(box.wait(), FinishReason::length);
  wait_until_idle();
  const auto seals = [&] { return service_->stats().integrity_looked[IntegrityCheck::seals]; };
  const uint64_t before = seals();
  while (seals() < before + 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(service_->stats().integrity_failed, 0U);
}

TEST_F(ServiceTest, AnOperatorIsAnswered) {
  const IntegrityReport report = service_->integrity();
  EXPECT_EQ(report.pages[static_cast<size_t>(PageState::free)], small_config().n_pages - 1);
  EXPECT_TRUE(report.quarantined.empty());
  EXPECT_EQ(service_->release_page(PageId{3}).error().code, ErrorCode::corruption);
  EXPECT_EQ(service_->release_page(PageId{0}).error().code, ErrorCode::invalid_argument);
}

TEST_F(ServiceTest, ADrainingServiceEndsWhatItHasAndTakesNoMore) {
  Mailbox running;
  Mailbox late;
  ASSERT_TRUE(service_->submit(request_of(1, 40), mail(running)).ok());
  service_->drain();
  const Result<RequestId> id = service_->submit(request_of(1, 4), mail(late));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::unavailable);
  EXPECT_EQ(running.wait(), FinishReason::length);
  wait_until_idle();
}

TEST_F(ServiceTest, AbortEndsARunningRequestAndLateOnesAreIgnored) {
  EngineConfig config = small_config();
  config.n_pages = 4000;
  config.context_tokens = 10000;
  start(config);
  Mailbox box;
  const Result<RequestId> id = service_->submit(request_of(1, 9000), mail(box));
  ASSERT_TRUE(id.ok());
  box.wait_for_token();
  service_->abort(id.value());
  EXPECT_EQ(box.wait(), FinishReason::aborted);
  service_->abort(id.value());
  service_->abort(RequestId{12345});
  wait_until_idle();
  EXPECT_TRUE(service_->audit().ok());
  EXPECT_EQ(service_->stats().requests_aborted, 1U);
}

TEST_F(ServiceTest, TheEndOfTheServiceAbortsWhatIsLeft) {
  EngineConfig config = small_config();
  config.n_pages = 4000;
  config.context_tokens = 10000;
  start(config);
  std::vector<Mailbox> boxes(8);
  for (Mailbox& box : boxes) ASSERT_TRUE(service_->submit(request_of(1, 9000), mail(box)).ok());
  service_.reset();
  for (Mailbox& box : boxes) EXPECT_EQ(box.wait(), FinishReason::aborted);
}

// Many threads submit, abort, audit and look, all at once; every request ends exactly once, and
// right if it was let.
TEST_F(ServiceTest, ManyThreadsAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 60;
  EngineConfig config = small_config();
  config.n_pages = 24;  // under pressure
  config.queued_requests_max = kThreads;
  start(config);
  std::atomic<int> answered = 0;
  std::atomic<int> aborted = 0;
  const auto client = [&](uint64_t seed) {
    Rng rng(seed);
    for (int i = 0; i < kRequests; ++i) {
      const GenerateRequest request = request_of(static_cast<Token>(rng.next_below(5)),
                                                 1 + static_cast<int32_t>(rng.next_below(30)));
      Mailbox box;
      const Result<RequestId> id = service_->submit(request, mail(box));
      ASSERT_TRUE(id.ok());
      if (rng.next_below(5) == 0) service_->abort(id.value());
      if (rng.next_below(10) == 0) {
        EXPECT_TRUE(service_->audit().ok());
      }
      if (rng.next_below(20) == 0) service_->flush_cache();
      EXPECT_LE(service_->stats().running, 4);
      const bool was_aborted = box.wait() == FinishReason::aborted;
      (was_aborted ? aborted : answered)++;
      const std::vector<Token> expected = right_answer(kModel, 0, request);
      const std::vector<Token> got = box.ids();
      ASSERT_LE(got.size(), expected.size());
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin()));
      EXPECT_TRUE(was_aborted || got.size() == expected.size());
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= kThreads; ++t) threads.emplace_back(client, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered + aborted, kThreads * kRequests);
  EXPECT_GT(answered, 0);
  wait_until_idle();
  EXPECT_TRUE(service_->audit().ok());
}

}  // namespace
}  // namespace quire
