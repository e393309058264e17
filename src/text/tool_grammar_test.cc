#include "text/tool_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/kimi_output_parser.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::small_tokenizer;

constexpr char kTools[] = R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}},
  {"type":"function","function":{"name":"get","parameters":null}}])";

std::vector<Token> allowed(const ToolGrammar& grammar, int32_t vocab_size) {
  std::vector<uint64_t> mask(token_mask_words(vocab_size), ~uint64_t{0});
  std::vector<Token> out;
  if (!grammar.fill_mask(mask)) return out;
  for (size_t i = 0; i < mask.size(); ++i) {
    for (uint64_t word = mask[i]; word != 0; word &= word - 1) {
      out.push_back(static_cast<Token>(i * 64) + std::countr_zero(word));
    }
  }
  return out;
}

class ToolGrammarTest : public ::testing::Test {
 protected:
  ToolGrammar make(const ToolGrammar::Options& options) const {
    auto out = ToolGrammar::make(trie_, marks_, parse_json(kTools).value(), options);
    EXPECT_TRUE(out.ok()) << out.error().message;
    return std::move(out).value();
  }
  // Feeds plain text token by token; false at the first that is refused.
  bool feed(ToolGrammar* grammar, std::string_view text) const {
    for (const Token token : tokenizer_.encode(text)) {
      if (!grammar->advance(token)) return false;
    }
    return true;
  }

  const Tokenizer tokenizer_ = small_tokenizer();
  const TokenTrie trie_{tokenizer_};
  const KimiTokens marks_ = KimiTokens::resolve(tokenizer_).value();
};

TEST_F(ToolGrammarTest, WalksThroughOneCall) {
  ToolGrammar grammar = make({.start = AnswerStart::in_thoughts, .calls = ToolGrammar::Calls::one});
  EXPECT_TRUE(feed(&grammar, "any thought at all"));
  EXPECT_EQ(allowed(grammar, tokenizer_.vocab_size()).size(),
            static_cast<size_t>(tokenizer_.vocabulary().size()) + 1);
  EXPECT_TRUE(grammar.advance(marks_.think_end));
  EXPECT_EQ(allowed(grammar, tokenizer_.vocab_size()), std::vector<Token>{marks_.section_begin});
  EXPECT_TRUE(grammar.advance(marks_.section_begin));
  EXPECT_TRUE(grammar.advance(marks_.call_begin));
  EXPECT_TRUE(feed(&grammar, "functions.get_weather:0"));
  EXPECT_TRUE(grammar.advance(marks_.argument_begin));
  EXPECT_TRUE(feed(&grammar, "{\"city\": \"Paris\", \"days\": 12}"));
  EXPECT_EQ(allowed(grammar, tokenizer_.vocab_size()), std::vector<Token>{marks_.call_end});
  EXPECT_TRUE(grammar.advance(marks_.call_end));
  EXPECT_EQ(allowed(grammar, tokenizer_.vocab_size()), std::vector<Token>{marks_.section_end});
  EXPECT_TRUE(grammar.advance(marks_.section_end));
  EXPECT_FALSE(grammar.finished());
  EXPECT_TRUE(grammar.advance(marks_.im_end));
  EXPECT_TRUE(grammar.finished());
}

TEST_F(ToolGrammarTest, RefusesWhatIsNotACall) {
  const auto in_name = [&] {
    ToolGrammar grammar = make({.start = AnswerStart::answer});
    grammar.advance(marks_.section_begin);
    grammar.advance(marks_.call_begin);
    return grammar;
  };
  ToolGrammar other_name = in_name();
  EXPECT_FALSE(feed(&other_name, "functions.got:0"));
  EXPECT_TRUE(allowed(other_name, tokenizer_.vocab_size()).empty());  // a dead end, reported
  EXPECT_FALSE(other_name.advance(marks_.im_end));
  ToolGrammar no_index = in_name();
  EXPECT_TRUE(feed(&no_index, "functions.get:"));
  EXPECT_FALSE(no_index.advance(marks_.argument_begin));
  ToolGrammar long_index = in_name();
  EXPECT_FALSE(feed(&long_index, "functions.get:12345"));
  ToolGrammar content = make({.start = AnswerStart::answer});
  EXPECT_FALSE(feed(&content, "I would rather talk"));
  ToolGrammar out_of_range = make({.start = AnswerStart::in_thoughts});
  EXPECT_FALSE(out_of_range.advance(-1));
}

TEST_F(ToolGrammarTest, MayBeHeldToOneFunction) {
  ToolGrammar grammar = make({.start = AnswerStart::may_think, .function = "get"});
  EXPECT_EQ(allowed(grammar, tokenizer_.vocab_size()),
            (std::vector<Token>{marks_.section_begin, marks_.think_begin}));
  grammar.advance(marks_.section_begin);
  grammar.advance(marks_.call_begin);
  ToolGrammar copy = grammar;
  EXPECT_FALSE(feed(&grammar, "functions.get_weather:0"));
  EXPECT_TRUE(feed(&copy, "functions.get:0"));
}

TEST_F(ToolGrammarTest, NamesWhatItCannotUse) {
  const auto refusal = [&](const std::string& tools, std::optional<std::string> function) {
    const auto out =
        ToolGrammar::make(trie_, marks_, parse_json(tools).value(), {.function = function});
    return out.ok() ? "accepted" : out.error().message;
  };
  EXPECT_THAT(refusal("[]", std::nullopt), HasSubstr("tools: "));
  EXPECT_THAT(refusal(kTools, "nothing"), HasSubstr("tool_choice.function.name: "));
  EXPECT_THAT(refusal(R"([{"function":{"name":"a","parameters":{"type":"x"}}}])", std::nullopt),
              HasSubstr("tools[0].function.parameters: type: "));
  EXPECT_THAT(refusal(R"([{"function":{"name":"a:b"}}])", std::nullopt),
              HasSubstr("tools[0].function.name: "));
  EXPECT_THAT(refusal(R"([{"function":{"name":"a"}},{"function":{"name":"a"}}])", std::nullopt),
              HasSubstr("two functions"));
}

// The mask is exactly the set of tokens that advance() takes.
TEST_F(ToolGrammarTest, MasksWhatAdvanceTakes) {
  Rng rng(29);
  for (int trial = 0; trial < 20; ++trial) {
    ToolGrammar grammar = make({.start = AnswerStart::answer});
    for (int step = 0; step < 40 && !grammar.finished(); ++step) {
      const std::vector<Token> mask = allowed(grammar, tokenizer_.vocab_size());
      std::vector<Token> taken;
      for (Token token = 0; token < tokenizer_.vocab_size(); ++token) {
        ToolGrammar copy = grammar;
        if (copy.advance(token)) taken.push_back(token);
      }
      ASSERT_EQ(mask, taken);
      ASSERT_FALSE(mask.empty());
      ASSERT_TRUE(grammar.advance(mask[rng.next_below(mask.size())]));
    }
  }
}

// Picks among the allowed tokens, leaning towards the end; what comes out is read by the parser.
void generate_and_parse(const Tokenizer& tokenizer, const TokenTrie& trie, int n_answers) {
  const KimiTokens marks = KimiTokens::resolve(tokenizer).value();
  const Token quote = tokenizer.vocabulary().find("\"").value();
  const Token brace = tokenizer.vocabulary().find("}").value();
  Rng rng(31);
  int n_finished = 0;
  for (int trial = 0; trial < n_answers; ++trial) {
    ToolGrammar grammar =
        ToolGrammar::make(trie, marks, parse_json(kTools).value(), {.start = AnswerStart::answer})
            .value();
    std::vector<Token> answer;
    while (!grammar.finished() && answer.size() < 500) {
      const std::vector<Token> mask = allowed(grammar, tokenizer.vocab_size());
      ASSERT_FALSE(mask.empty()) << tokenizer.bytes(answer);
      Token token = mask[rng.next_below(mask.size())];
      for (const Token closing : {quote, brace, marks.section_end}) {
        const bool may = std::binary_search(mask.begin(), mask.end(), closing);
        if (may && rng.next_below(3) == 0) token = closing;
      }
      ASSERT_TRUE(grammar.advance(token));
      answer.push_back(token);
    }
    if (!grammar.finished()) continue;
    ++n_finished;
    KimiOutputParser parser(tokenizer, marks, {.start = AnswerStart::answer});
    const ParsedOutput out = parse_output(parser, answer);
    EXPECT_EQ(out.content, "");
    ASSERT_FALSE(out.tool_calls.empty());
    for (const ParsedOutput::ToolCall& call : out.tool_calls) {
      EXPECT_TRUE(call.is_complete);
      EXPECT_TRUE(call.name == "get" || call.name == "get_weather");
      if (call.name != "get_weather") continue;
      const auto arguments = parse_json(call.arguments);
      ASSERT_TRUE(arguments.ok()) << call.arguments;
      EXPECT_TRUE(arguments.value()["city"].is_string()) << call.arguments;
    }
  }
  EXPECT_GT(n_finished, n_answers / 2);
}

TEST_F(ToolGrammarTest, AlwaysEndsInReadableCalls) { generate_and_parse(tokenizer_, trie_, 200); }

TEST(ToolGrammarKimi, MasksTheWholeVocabularyInTime) {
  const std::string dir =
      std::string(QUIRE_SOURCE_DIR) + "/../shared/data/hf/moonshotai--Kimi-K2.6";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no Kimi tokenizer in ../shared/data";
  const Tokenizer tokenizer = Tokenizer::load(dir).value();
  const TokenTrie trie(tokenizer);
  generate_and_parse(tokenizer, trie, 10);
  // Printed, not asserted: the machine may be busy. On a 2-core Xeon, -O2: mean 27 us.
  const KimiTokens marks = KimiTokens::resolve(tokenizer).value();
  ToolGrammar grammar =
      ToolGrammar::make(trie, marks, parse_json(kTools).value(), {.start = AnswerStart::answer})
          .value();
  grammar.advance(marks.section_begin);
  grammar.advance(marks.call_begin);
  for (const Token token : tokenizer.encode("functions.get_weather:0")) grammar.advance(token);
  grammar.advance(marks.argument_begin);
  const SteadyClock clock;
  std::vector<uint64_t> mask(token_mask_words(tokenizer.vocab_size()));
  for (const Token token :
       tokenizer.encode("{\"city\": \"New York \\\"City\\\"\", \"days\": 12}")) {
    const int64_t start_us = clock.now_us();
    ASSERT_TRUE(grammar.fill_mask(mask));
    std::printf("mask before %-8s %lld us\n", std::string(tokenizer.token_bytes(token)).c_str(),
                static_cast<long long>(clock.now_us() - start_us));
    ASSERT_TRUE(grammar.advance(token));
  }
}

}  // namespace
}  // namespace quire
