// A pool of 48.2e9 bytes, as one rank of Kimi K2 would have it, full of long requests: as many run
// at once as there are pages for, the next ones wait, and past the queue they are refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"
#include "format/kv_page.h"

namespace quire {
namespace {

constexpr int64_t kPoolBytes = 48'200'000'000;
constexpr int32_t kRequestTokens = 20'992;
constexpr int32_t kOutputTokens = 256;  // more than the steps that prefill everybody
constexpr int32_t kVocab = 100;
constexpr int32_t kWaiting = 4;  // beside those that fit
constexpr SimModel kModel{.vocab_size = kVocab, .seed = 5};

struct Case {
  KvFormat kv_format;
  int32_t n_fit;
};

class FullPoolTest : public testing::TestWithParam<Case> {};

TEST_P(FullPoolTest, RunsWhatFitsAndLetsTheRestWait) {
  const KvPageLayout layout = make_mla_layout(GetParam().kv_format, 61, 512, 64);
  const EngineConfig config{.n_pages = static_cast<int32_t>(kPoolBytes / layout.page_bytes),
                            .page_tokens = layout.page_tokens,
                            .vocab_size = kVocab,
                            .context_tokens = kRequestTokens,
                            // More than the pool holds: the pool decides.
                            .running_requests_max = GetParam().n_fit + kWaiting / 2,
                            .queued_requests_max = kWaiting / 2,
                            .chunked_prefill_tokens = 8192,
                            .prefix_cache = false};
  ManualClock clock;
  Log log(LogLevel::error, LogFormat::text);
  SimExecutor executor(kModel, executor_limits(config), [](RequestId) -> uint64_t { return 0; });
  Engine engine(config, executor, clock, log);
  Rng rng(3);
  const auto make_request = [&rng] {
    GenerateRequest request{.max_new_tokens = kOutputTokens};
    request.sampling.temperature = 0;
    for (int32_t k = 0; k < kRequestTokens - kOutputTokens; ++k) {
      request.prompt.push_back(static_cast<Token>(rng.next_below(kVocab)));
    }
    return request;
  };
  std::vector<Heard> heard(static_cast<size_t>(GetParam().n_fit + kWaiting));
  for (Heard& one : heard) ASSERT_TRUE(engine.add(make_request(), hear(one)).ok());
  Heard refused;
  const Result<RequestId> one_more = engine.add(make_request(), hear(refused));
  ASSERT_FALSE(one_more.ok());
  EXPECT_EQ(one_more.error().code, ErrorCode::resource_exhausted);

  int32_t running_max = 0;
  while (engine.step()) running_max = std::max(running_max, engine.stats().running);
  EXPECT_EQ(running_max, GetParam().n_fit);
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_TRUE(engine.audit().ok());
  for (const Heard& one : heard) EXPECT_EQ(one.tokens.size(), size_t{kOutputTokens});
}

INSTANTIATE_TEST_SUITE_P(, FullPoolTest,
                         testing::Values(Case{KvFormat::fp8_e4m3_584, 64},
                                         Case{KvFormat::bf16, 32}),
                         [](const auto& each) { return std::string(name(each.param.kv_format)); });

}  // namespace
}  // namespace quire
