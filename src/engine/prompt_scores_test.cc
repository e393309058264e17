// Log-probabilities of prompts, on symbolic cells: every token once and in order, whatever is
// cached, however the prompt is cut, and though it was preempted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/faulty_executor.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 100;
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

class PromptScores : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void start() {
    engine_.reset();
    sim_ = std::make_unique<SimExecutor>(kModel, executor_limits(config_),
                                         [](RequestId) { return uint64_t{0}; });
    executor_ = std::make_unique<FaultyExecutor>(*sim_);
    engine_ = std::make_unique<Engine>(config_, *executor_, clock_, log_);
  }
  static GenerateRequest request_of(std::vector<Token> prompt, int32_t max_new_tokens) {
    GenerateRequest request = seeded_request(std::move(prompt), max_new_tokens);
    request.prompt_logprobs = 0;
    return request;
  }
  void add(const GenerateRequest& request, Heard& heard) {
    ASSERT_TRUE(engine_->add(request, hear(heard)).ok());
  }
  void run_to_end() {
    for (int i = 0; i < 1000 && !engine_->is_idle(); ++i) {
      engine_->step();
      EXPECT_TRUE(engine_->audit().ok());
    }
    EXPECT_TRUE(engine_->is_idle());
  }
  static std::vector<Token> right(const GenerateRequest& request) {
    return right_answer(kModel, 0, request);
  }
  // The tokens after the first, each once and in order, before the answer.
  static void expect_scored(const Heard& heard, const std::vector<Token>& prompt) {
    const std::vector<GeneratedToken> scores = heard.scores();
    ASSERT_EQ(scores.size(), prompt.size() - 1);
    for (size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(scores[i].token, prompt[i + 1]) << i;
    bool has_begun = false;
    for (const RequestOutput& output : heard.outputs) {
      EXPECT_FALSE(has_begun && !output.prompt_tokens_scored.empty());
      has_begun = has_begun || !output.tokens.empty();
    }
  }
  static bool same_logprobs(const Heard& first, const Heard& second) {
    const auto same = [](const GeneratedToken& a, const GeneratedToken& b) {
      return a.logprob == b.logprob;
    };
    return std::ranges::equal(first.scores(), second.scores(), same);
  }

  EngineConfig config_{.n_pages = 33,
                       .page_tokens = 4,
                       .vocab_size = kVocab,
                       .context_tokens = 64,
                       .running_requests_max = 4,
                       .queued_requests_max = 8,
                       .chunked_prefill_tokens = 16};
  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  std::unique_ptr<SimExecutor> sim_;
  std::unique_ptr<FaultyExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(PromptScores, AreTheSameWhateverIsCachedAndHoweverThePromptIsCut) {
  const GenerateRequest request = request_of(counting_prompt(3, 41, kVocab), 4);
  GenerateRequest plain = request;
  plain.prompt_logprobs.reset();
  Heard unasked;
  add(plain, unasked);
  run_to_end();
  EXPECT_TRUE(unasked.scores().empty());
  Heard scored;
  add(request, scored);
  run_to_end();
  expect_scored(scored, request.prompt);
  EXPECT_EQ(scored.last().cached_tokens, 0);
  EXPECT_EQ(scored.ids(), right(request));
  // Those who ask for nothing find what was computed.
  Heard cached;
  add(plain, cached);
  run_to_end();
  EXPECT_EQ(cached.last().cached_tokens, 40);

  config_.chunked_prefill_tokens = 7;
  config_.overlap = Overlap::on;
  start();
  Heard in_chunks;
  add(request, in_chunks);
  run_to_end();
  expect_scored(in_chunks, request.prompt);
  EXPECT_TRUE(same_logprobs(in_chunks, scored));
}

TEST_F(PromptScores, APromptOfOneTokenHasNone) {
  const GenerateRequest request = request_of({9}, 2);
  Heard heard;
  add(request, heard);
  run_to_end();
  EXPECT_TRUE(heard.scores().empty());
  EXPECT_EQ(heard.ids(), right(request));
}

TEST_F(PromptScores, APreemptedPromptIsToldOnce) {
  config_.n_pages = 11;  // 40 tokens for 4 requests of up to 30
  start();
  std::vector<Heard> heard(4);
  std::vector<GenerateRequest> requests;
  for (Token i = 0; i < 4; ++i) {
    requests.push_back(request_of(counting_prompt(10 * i, 6, kVocab), 24));
    add(requests.back(), heard[static_cast<size_t>(i)]);
  }
  run_to_end();
  EXPECT_GT(engine_->stats().preemptions, 0U);
  for (size_t i = 0; i < 4; ++i) {
    expect_scored(heard[i], requests[i].prompt);
    EXPECT_EQ(heard[i].ids(), right(requests[i])) << i;
  }
}

TEST_F(PromptScores, AScoreOfAnotherTokenEndsTheRequest) {
  const GenerateRequest request = request_of(counting_prompt(3, 9, kVocab), 4);
  executor_->spoil_result = [](StepResult& result) { ++result.rows[0].scores[2].token; };
  Heard heard;
  add(request, heard);
  run_to_end();
  EXPECT_EQ(heard.last().finish, FinishReason::failed);
  EXPECT_TRUE(heard.scores().empty());
}

TEST_F(PromptScores, TooManyAlternativesAreRefused) {
  GenerateRequest request = request_of({1, 2, 3}, 4);
  request.prompt_logprobs = kTopLogprobsMax + 1;
  Heard heard;
  const Result<RequestId> id = engine_->add(request, hear(heard));
  ASSERT_FALSE(id.ok());
  EXPECT_THAT(id.error().message, testing::HasSubstr("prompt_logprobs"));
}

}  // namespace
}  // namespace quire
