// Prompts that are there at once: what a bench stands on. Requests of every check end inside their
// pages, whose next holders read them as they are, and no request may notice.
#include "tools/ready_prompts.h"

#include <gtest/gtest.h>

#include "engine/test_requests.h"
#include "tests/engine/tiny_model.h"

namespace quire {
namespace {

TEST(ReadyPromptsTest, RequestsThatReuseEachOthersPagesAreAnswered) {
  constexpr int32_t kPrompt = 130;
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    const TinyModel tiny_model = load_tiny_model("bf16", 1);
    const EngineConfig config{
        .n_pages = 14,
        .vocab_size = static_cast<int32_t>(tiny_model.config.shape.vocab_size),
        .context_tokens = 300,
        .running_requests_max = 3,
        .queued_requests_max = 32,
        .chunked_prefill_tokens = 512,
        .integrity = integrity_config(IntegrityLevel::full),
        .domain = {.kv_format = format}};
    const TinyExecutor tiny = make_tiny_executor(tiny_model, config);
    const std::span pool(tiny.executor->pool(), static_cast<size_t>(tiny.executor->pool_bytes()));
    std::ranges::fill(pool, std::byte{0x30});
    ReadyPrompts prompts(*tiny.executor, kPrompt);
    SteadyClock clock;
    Log log{LogLevel::silent, LogFormat::text};
    std::vector<Heard> heard(30);
    Engine engine(config, prompts, clock, log);
    for (size_t i = 0; i < heard.size(); ++i) {
      const auto first = static_cast<Token>(i);
      GenerateRequest request{.prompt = counting_prompt(first, kPrompt, config.vocab_size),
                              .max_new_tokens = 70 + first % 9};
      request.sampling.temperature = 0;
      ASSERT_TRUE(engine.add(std::move(request), hear(heard[i])).ok());
    }
    int32_t widest = 0;
    while (engine.step()) widest = std::max(widest, prompts.rows_of_last());
    EXPECT_EQ(widest, 3);
    for (const Heard& one : heard) EXPECT_EQ(one.last().finish, FinishReason::length);
    EXPECT_EQ(engine.stats().integrity_found.total(), 0U);
    EXPECT_TRUE(engine.audit().ok());
  }
}

}  // namespace
}  // namespace quire
