// On the CPU the same request gives the same bytes, tokens and log-probabilities alike: alone, in
// any batch, chunked or not, with a prefix hit or miss, preempted and resumed, and as a second turn
// over its own generated tokens; and so do the pages it leaves.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>
#include <string>

#include "engine/forwarding_executor.h"
#include "engine/test_requests.h"
#include "tests/engine/tiny_model.h"

namespace quire {
namespace {

constexpr int32_t kPromptTokens = 150;  // two full pages and a part
constexpr int32_t kNewTokens = 60;      // past the end of the third

// Every sealed page's seal, by identity: what must not depend on scheduling.
using Seals = std::map<std::pair<uint64_t, uint64_t>, PageSeal>;

// Keeps the directory within sight, to read the seals from.
class SealWatch final : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;
  void watch_directory(std::span<const PageEntry> directory, StepChecks checks) override {
    directory_ = directory;
    ForwardingExecutor::watch_directory(directory, checks);
  }
  void collect(Seals* seals) const {
    for (const PageEntry& entry : directory_) {
      if (entry.state != PageState::sealed) continue;
      const auto [at, is_new] =
          seals->insert({{entry.identity.low, entry.identity.high}, entry.seal});
      EXPECT_EQ(at->second, entry.seal) << "two pages of the same tokens differ";
    }
  }

 private:
  std::span<const PageEntry> directory_;
};

struct Answers {
  std::vector<Heard> heard;
  Seals seals;
  EngineStats stats;
};

// How the engine drives the executor: neither may change a byte.
struct Driving {
  KvFormat format;
  Overlap overlap = Overlap::off;
  RecordSteps record = RecordSteps::no;
};

class SameBytesTest : public testing::TestWithParam<Driving> {
 protected:
  static EngineConfig base_config() {
    return {.n_pages = 60,
            .context_tokens = 400,
            .running_requests_max = 8,
            .queued_requests_max = 16,
            .chunked_prefill_tokens = 512,
            .overlap = GetParam().overlap,
            .domain = {.kv_format = GetParam().format}};
  }

  // Runs the requests, all added at once, or each after the one before has ended.
  enum class Arrival { together, in_turn };
  Answers run(EngineConfig config, const std::vector<GenerateRequest>& requests,
              Arrival arrival = Arrival::together) {
    config.vocab_size = static_cast<int32_t>(tiny_.config.shape.vocab_size);
    const TinyExecutor tiny = make_tiny_executor(tiny_, config, GetParam().record);
    SealWatch watch(*tiny.executor);
    Answers answers{.heard = std::vector<Heard>(requests.size())};
    Engine engine(config, watch, clock_, log_);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(engine.add(requests[i], hear(answers.heard[i])).ok());
      while (arrival == Arrival::in_turn && engine.step()) watch.collect(&answers.seals);
    }
    while (engine.step()) watch.collect(&answers.seals);
    EXPECT_TRUE(engine.audit().ok());
    answers.stats = engine.stats();
    return answers;
  }

  // A request whose every setting has something to do.
  GenerateRequest request_of(Token first, int32_t n_prompt, int32_t n_new) const {
    GenerateRequest request{
        .prompt =
            counting_prompt(first, n_prompt, static_cast<int32_t>(tiny_.config.shape.vocab_size)),
        .max_new_tokens = n_new};
    request.sampling = {.temperature = 0.9F,
                        .top_p = 0.95F,
                        .top_k = 40,
                        .frequency_penalty = 0.1F,
                        .repetition_penalty = 1.05F,
                        .seed = static_cast<uint64_t>(first) + 1,
                        .top_logprobs = 3,
                        .logit_bias = {{5, 0.5F}}};
    return request;
  }

  static void expect_same(const Heard& found, const Heard& expected) {
    ASSERT_EQ(found.ids(), expected.ids());
    for (size_t i = 0; i < found.tokens.size(); ++i) {
      const GeneratedToken& a = found.tokens[i];
      const GeneratedToken& b = expected.tokens[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(a.logprob), std::bit_cast<uint32_t>(b.logprob)) << i;
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t t = 0; t < a.top.size(); ++t) {
        ASSERT_EQ(a.top[t].first, b.top[t].first) << i;
        ASSERT_EQ(std::bit_cast<uint32_t>(a.top[t].second),
                  std::bit_cast<uint32_t>(b.top[t].second));
      }
    }
  }

  // Every page of `expected` has the same seal in `found`.
  static void expect_same_pages(const Seals& found, const Seals& expected) {
    ASSERT_FALSE(expected.empty());
    for (const auto& [identity, seal] : expected) {
      const auto at = found.find(identity);
      ASSERT_NE(at, found.end());
      EXPECT_EQ(at->second, seal);
    }
  }

  const TinyModel tiny_ = load_tiny_model("bf16", 2);
  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  const GenerateRequest request_ = request_of(3, kPromptTokens, kNewTokens);
};

TEST_P(SameBytesTest, TheAnswerIsNotTrivial) {
  const Answers alone = run(base_config(), {request_});
  ASSERT_EQ(alone.heard[0].tokens.size(), static_cast<size_t>(kNewTokens));
  const std::vector<Token> ids = alone.heard[0].ids();
  EXPECT_GT(std::set<Token>(ids.begin(), ids.end()).size(), 10U);
  GenerateRequest other = request_;
  other.sampling.seed += 1;
  EXPECT_NE(run(base_config(), {other}).heard[0].ids(), ids);
}

TEST_P(SameBytesTest, InABatch) {
  const Answers alone = run(base_config(), {request_});
  std::vector<GenerateRequest> batch;
  for (Token i = 0; i < 7; ++i) batch.push_back(request_of(20 + 9 * i, 20 + 30 * i, 10 + 5 * i));
  batch.insert(batch.begin() + 3, request_);
  const Answers together = run(base_config(), batch);
  expect_same(together.heard[3], alone.heard[0]);
  expect_same_pages(together.seals, alone.seals);
}

TEST_P(SameBytesTest, InChunksOfAnySize) {
  const Answers whole = run(base_config(), {request_});
  for (const int32_t chunk : {1, 3, 63, 64, 65, 149}) {
    EngineConfig config = base_config();
    config.chunked_prefill_tokens = chunk;
    const Answers chunked = run(config, {request_, request_of(50, 40, 20)});
    expect_same(chunked.heard[0], whole.heard[0]);
    expect_same_pages(chunked.seals, whole.seals);
  }
}

TEST_P(SameBytesTest, WithAPrefixHit) {
  const Answers twice = run(base_config(), {request_, request_}, Arrival::in_turn);
  EXPECT_EQ(twice.heard[0].last().cached_tokens, 0);
  EXPECT_EQ(twice.heard[1].last().cached_tokens, 128);
  expect_same(twice.heard[1], twice.heard[0]);
}

TEST_P(SameBytesTest, WhenAPromptIsWhollyCached) {
  const GenerateRequest exact = request_of(3, 128, 20);
  const Answers answers = run(base_config(), {request_, exact}, Arrival::in_turn);
  EXPECT_EQ(answers.heard[1].last().cached_tokens, 64);
  expect_same(answers.heard[1], run(base_config(), {exact}).heard[0]);
}

TEST_P(SameBytesTest, PreemptedAndResumed) {
  std::vector<GenerateRequest> requests;
  for (Token i = 0; i < 4; ++i) requests.push_back(request_of(3 + 11 * i, 40, 120));
  for (const bool prefix_cache : {true, false}) {
    EngineConfig config = base_config();
    config.n_pages = 9;  // four requests grow to three pages each
    config.prefix_cache = prefix_cache;
    const Answers pressed = run(config, requests);
    EXPECT_GT(pressed.stats.preemptions, 0U);
    for (size_t i = 0; i < requests.size(); ++i) {
      const Answers alone = run(base_config(), {requests[i]});
      expect_same(pressed.heard[i], alone.heard[0]);
      expect_same_pages(pressed.seals, alone.seals);
    }
  }
}

// Poisoned pages reach real kernels, and seals of prefix hits are verified on real bytes.
TEST_P(SameBytesTest, WithEveryCheckOfIntegrity) {
  std::vector<GenerateRequest> requests{request_, request_};
  for (Token i = 0; i < 4; ++i) requests.push_back(request_of(3 + 11 * i, 40, 120));
  EngineConfig config = base_config();
  config.n_pages = 10;
  const Answers tagged = run(config, requests, Arrival::in_turn);
  config.integrity = integrity_config(IntegrityLevel::off);
  const Answers without = run(config, requests, Arrival::in_turn);
  EXPECT_EQ(without.stats.integrity_checked, 0U);
  config.integrity = integrity_config(IntegrityLevel::full);
  config.integrity.audit_steps = 8;
  for (const Arrival arrival : {Arrival::in_turn, Arrival::together}) {
    const Answers checked = run(config, requests, arrival);
    EXPECT_GT(checked.stats.integrity_checked, 0U);
    EXPECT_EQ(checked.stats.integrity_failed, 0U);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same(checked.heard[i], tagged.heard[i]);
      expect_same(without.heard[i], tagged.heard[i]);
    }
    expect_same_pages(checked.seals, tagged.seals);
  }
}

TEST_P(SameBytesTest, AsASecondTurnOverItsOwnTokens) {
  const Answers first = run(base_config(), {request_});
  GenerateRequest turn = request_of(77, 30, 40);
  std::vector<Token> conversation = request_.prompt;
  for (const Token token : first.heard[0].ids()) conversation.push_back(token);
  conversation.insert(conversation.end(), turn.prompt.begin(), turn.prompt.end());
  turn.prompt = conversation;
  const Answers fresh = run(base_config(), {turn});
  const Answers second = run(base_config(), {request_, turn}, Arrival::in_turn);
  // 209 tokens were computed: the third page holds generated tokens.
  EXPECT_EQ(second.heard[1].last().cached_tokens, 192);
  expect_same(second.heard[1], fresh.heard[0]);
  expect_same_pages(second.seals, fresh.seals);
}

TEST_P(SameBytesTest, OnAnyNumberOfThreads) {
  const Answers two = run(base_config(), {request_});
  const TinyModel one_thread = load_tiny_model("bf16", 1);
  EngineConfig config = base_config();
  config.vocab_size = static_cast<int32_t>(one_thread.config.shape.vocab_size);
  const TinyExecutor tiny = make_tiny_executor(one_thread, config);
  Heard heard;
  Engine engine(config, *tiny.executor, clock_, log_);
  ASSERT_TRUE(engine.add(request_, hear(heard)).ok());
  while (engine.step()) continue;
  expect_same(heard, two.heard[0]);
}

INSTANTIATE_TEST_SUITE_P(, SameBytesTest,
                         testing::Values(Driving{KvFormat::bf16}, Driving{KvFormat::fp8_e4m3_584},
                                         Driving{KvFormat::bf16, Overlap::on, RecordSteps::no},
                                         Driving{KvFormat::fp8_e4m3_584, Overlap::on,
                                                 RecordSteps::yes}),
                         [](const auto& each) {
                           return std::string(name(each.param.format)) +
                                  (each.param.overlap == Overlap::on ? "_overlapped" : "") +
                                  (each.param.record == RecordSteps::yes ? "_recorded" : "");
                         });

}  // namespace
}  // namespace quire
