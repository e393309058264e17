// A grammar in the engine: every token that is chosen under its mask is taken by it, whatever the
// model would rather say, through preemption too; and its end is the request's.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

constexpr const char* kTools = R"([{"type": "function", "function": {
  "name": "set_unit", "description": "Sets the unit.",
  "parameters": {"type": "object", "properties": {"unit": {"enum": ["metric", "imperial"]}},
                 "required": ["unit"], "additionalProperties": false}}}])";

class GrammarTest : public testing::Test {
 protected:
  const Tokenizer tokenizer_ =
      Tokenizer::load(std::string(QUIRE_SOURCE_DIR) + "/models/kimi-nano").value();
  const TokenTrie trie_{tokenizer_};
  const KimiTokens tokens_ = KimiTokens::resolve(tokenizer_).value();
  // A model that has no idea: any token, by chance.
  const SimModel model_{.vocab_size = tokenizer_.vocab_size(), .seed = 3};

  EngineConfig config() const {
    return {.n_pages = 40,
            .page_tokens = 16,
            .vocab_size = model_.vocab_size,
            .context_tokens = 400,
            .running_requests_max = 4,
            .queued_requests_max = 4,
            .chunked_prefill_tokens = 64};
  }
  GenerateRequest request_of(uint64_t seed, int32_t max_new_tokens) const {
    GenerateRequest request{.prompt = {1, 2, 3}, .max_new_tokens = max_new_tokens};
    request.sampling.seed = seed;
    request.grammar =
        ToolGrammar::make(trie_, tokens_, parse_json(kTools).value(),
                          {.start = AnswerStart::answer, .calls = ToolGrammar::Calls::one})
            .value();
    return request;
  }
  std::string text_of(const std::vector<Token>& ids) const {
    std::string text;
    for (const Token id : ids) text += tokenizer_.token_bytes(id);
    return text;
  }
  // Four requests at once.
  std::vector<Heard> run(const EngineConfig& config, int32_t max_new_tokens, EngineStats* stats) {
    SimExecutor executor(model_, executor_limits(config), [](RequestId) { return uint64_t{0}; });
    std::vector<Heard> heard(4);
    ManualClock clock;
    Log log(LogLevel::error, LogFormat::text);
    Engine engine(config, executor, clock, log);
    for (size_t i = 0; i < heard.size(); ++i) {
      EXPECT_TRUE(engine.add(request_of(i, max_new_tokens), hear(heard[i])).ok());
    }
    while (engine.step()) EXPECT_TRUE(engine.audit().ok());
    *stats = engine.stats();
    return heard;
  }
};

TEST_F(GrammarTest, AModelWithoutAnIdeaMakesAWellFormedCall) {
  EngineStats stats;
  const std::vector<Heard> heard = run(config(), 300, &stats);
  int n_finished = 0;
  for (const Heard& one : heard) {
    // Taken again, from the start: every token must have been allowed.
    ToolGrammar grammar = *request_of(0, 1).grammar;
    for (const Token id : one.ids()) ASSERT_TRUE(grammar.advance(id)) << text_of(one.ids());
    ASSERT_TRUE(one.last().finish.has_value());
    if (!grammar.finished()) continue;  // chance went on with blanks until its tokens were spent
    ++n_finished;
    EXPECT_EQ(one.last().finish, FinishReason::stop);
    EXPECT_NE(text_of(one.ids()).find("functions.set_unit:"), std::string::npos);
    EXPECT_NE(text_of(one.ids()).find("\"unit\""), std::string::npos);
  }
  EXPECT_GT(n_finished, 0);
}

TEST_F(GrammarTest, PreemptionDoesNotMoveIt) {
  constexpr int32_t kNewTokens = 40;
  EngineStats calm;
  const std::vector<Heard> expected = run(config(), kNewTokens, &calm);
  EngineConfig tight = config();
  tight.page_tokens = 4;
  tight.n_pages = 1 + 11;  // one request at its longest: 3 + 40 tokens
  EngineStats pressed;
  const std::vector<Heard> found = run(tight, kNewTokens, &pressed);
  EXPECT_EQ(calm.preemptions, 0U);
  EXPECT_GT(pressed.preemptions, 0U);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].ids(), expected[i].ids());
}

}  // namespace
}  // namespace quire
