#include "text/kimi_output_parser.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

using testing::small_tokenizer;

class KimiOutput : public ::testing::Test {
 protected:
  // Tokens of a text in which marks are special tokens.
  std::vector<Token> tokens(std::string_view text) const {
    std::vector<Token> out;
    std::string plain;
    const auto end_plain = [&] {
      for (const Token token : tokenizer_.encode(plain)) out.push_back(token);
      plain.clear();
    };
    while (!text.empty()) {
      const size_t n = mark_bytes(text);
      if (n == 0) {
        plain += text[0];
        text.remove_prefix(1);
        continue;
      }
      end_plain();
      out.push_back(tokenizer_.special(text.substr(0, n)).value());
      text.remove_prefix(n);
    }
    end_plain();
    return out;
  }

  ParsedOutput parse(std::string_view text, const KimiOutputParser::Options& options) const {
    KimiOutputParser parser(tokenizer_, marks_, options);
    return parse_output(parser, tokens(text));
  }
  ParsedOutput parse(std::string_view text) const {
    return parse(text, {.start = AnswerStart::in_thoughts});
  }

  static size_t mark_bytes(std::string_view text) {
    for (const std::string_view mark :
         {kimi::kThinkBegin, kimi::kThinkEnd, kimi::kSectionBegin, kimi::kSectionEnd,
          kimi::kCallBegin, kimi::kArgumentBegin, kimi::kCallEnd, kimi::kImEnd}) {
      if (text.starts_with(mark)) return mark.size();
    }
    return 0;
  }

  const Tokenizer tokenizer_ = small_tokenizer();
  const KimiTokens marks_ = KimiTokens::resolve(tokenizer_).value();
};

constexpr char kTwoCalls[] =
    "why</think>Let me look.<|tool_calls_section_begin|>"
    "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}"
    "<|tool_call_end|>\n<|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|><|im_end|>";

TEST_F(KimiOutput, SeparatesThoughtsContentAndCalls) {
  const ParsedOutput out = parse(kTwoCalls);
  EXPECT_EQ(out.reasoning, "why");
  EXPECT_EQ(out.content, "Let me look.");
  ASSERT_EQ(out.tool_calls.size(), 2U);
  EXPECT_EQ(out.tool_calls[0].id, "functions.get_weather:0");
  EXPECT_EQ(out.tool_calls[0].name, "get_weather");
  EXPECT_EQ(out.tool_calls[0].arguments, "{\"city\": \"Paris\"}");
  EXPECT_TRUE(out.tool_calls[0].is_complete);
  EXPECT_EQ(out.tool_calls[1].name, "f");
  EXPECT_TRUE(out.has_complete_call());
}

TEST_F(KimiOutput, StreamsWhatIsCertain) {
  KimiOutputParser parser(tokenizer_, marks_, {.start = AnswerStart::answer});
  std::vector<OutputDelta> out;
  parser.push(tokenizer_.vocabulary().find("\xe4\xbd").value(), &out);
  EXPECT_TRUE(out.empty());
  parser.push(0xa0, &out);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].text, "\xe4\xbd\xa0");
  for (const Token token : tokens("<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0")) {
    parser.push(token, &out);
  }
  EXPECT_EQ(out.size(), 1U);  // a call is given when its name is whole
  parser.push(marks_.argument_begin, &out);
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[1].kind, OutputDelta::Kind::tool_call_begin);
  EXPECT_EQ(out[1].call, 0);
  parser.push('{', &out);
  ASSERT_EQ(out.size(), 3U);
  EXPECT_EQ(out[2].kind, OutputDelta::Kind::tool_call_arguments);
  EXPECT_EQ(out[2].text, "{");
}

TEST_F(KimiOutput, OpensItsThoughtsItself) {
  const KimiOutputParser::Options options{.start = AnswerStart::may_think};
  EXPECT_EQ(parse("<think>why</think>so", options),
            (ParsedOutput{.reasoning = "why", .content = "so"}));
  EXPECT_EQ(parse("so", options), (ParsedOutput{.content = "so"}));
  // Only at the beginning; later the marks are text, and seen.
  EXPECT_EQ(parse("so<think>x</think>", options), (ParsedOutput{.content = "so<think>x</think>"}));
  // The prompt opened the thoughts, and the model opens them again.
  EXPECT_EQ(parse("<think>why</think>so"), (ParsedOutput{.reasoning = "why", .content = "so"}));
}

TEST_F(KimiOutput, LooksForCallsOutsideOfThoughtsOnly) {
  EXPECT_EQ(parse("a<|tool_call_begin|>b</think>c"),
            (ParsedOutput{.reasoning = "a<|tool_call_begin|>b", .content = "c"}));
}

TEST_F(KimiOutput, IsNotFooledBySpelledMarks) {
  const std::string spelled = "</think><|tool_calls_section_begin|><|tool_call_begin|>";
  KimiOutputParser parser(tokenizer_, marks_, {.start = AnswerStart::in_thoughts});
  EXPECT_EQ(parse_output(parser, tokenizer_.encode(spelled)), (ParsedOutput{.reasoning = spelled}));
}

TEST_F(KimiOutput, LeavesMarksAsTextWhenThereAreNoTools) {
  const ParsedOutput out =
      parse(kTwoCalls, {.start = AnswerStart::in_thoughts, .tools = ToolParsing::off});
  EXPECT_TRUE(out.tool_calls.empty());
  EXPECT_EQ("why</think>" + out.content + "<|im_end|>", kTwoCalls);
}

TEST_F(KimiOutput, ShowsControlTokensOnDemand) {
  EXPECT_EQ(parse("a</think>b<|im_end|>").content, "b");
  EXPECT_EQ(parse("a</think>b<|im_end|>", {.specials = SpecialText::show_all}).content,
            "b<|im_end|>");
}

TEST_F(KimiOutput, SalvagesWhatIsWhole) {
  const std::string whole(kTwoCalls);
  // Cut inside the second call's arguments, and inside its head.
  const ParsedOutput in_arguments = parse(whole.substr(0, whole.find("{}") + 1));
  ASSERT_EQ(in_arguments.tool_calls.size(), 2U);
  EXPECT_TRUE(in_arguments.tool_calls[0].is_complete);
  EXPECT_FALSE(in_arguments.tool_calls[1].is_complete);
  EXPECT_EQ(in_arguments.tool_calls[1].arguments, "{");
  const ParsedOutput in_head = parse(whole.substr(0, whole.find(".f:1")));
  ASSERT_EQ(in_head.tool_calls.size(), 1U);
  EXPECT_EQ(in_head.content, "Let me look.<|tool_call_begin|>functions");
  // No end of the first call.
  const ParsedOutput no_end = parse(
      "</think><|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
      "<|tool_call_argument_begin|>{}<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>"
      "[]<|tool_calls_section_end|>done");
  ASSERT_EQ(no_end.tool_calls.size(), 2U);
  EXPECT_TRUE(no_end.tool_calls[0].is_complete);
  EXPECT_TRUE(no_end.tool_calls[1].is_complete);
  EXPECT_EQ(no_end.content, "done");
}

TEST_F(KimiOutput, GivesMalformedCallsAsContent) {
  const std::string section = "<|tool_calls_section_begin|>";
  // No index, no name, no head at all.
  for (const std::string head : {"functions.f", ":0", "", "functions.:1"}) {
    const std::string call =
        "<|tool_call_begin|>" + head + "<|tool_call_argument_begin|>{ 1 }<|tool_call_end|>";
    EXPECT_EQ(parse("</think>" + section + call), (ParsedOutput{.content = call}));
  }
  EXPECT_EQ(parse("</think>" + section + " stray text <|tool_calls_section_end|>").content,
            "stray text ");  // blanks right behind a mark are dropped
  const std::string endless(KimiOutputParser::kHeadBytesMax + 100, 'x');
  EXPECT_EQ(parse("</think>" + section + "<|tool_call_begin|>" + endless).content,
            "<|tool_call_begin|>" + endless);
}

TEST(KimiCallName, TakesTheMiddle) {
  EXPECT_EQ(kimi_call_name("functions.get_weather:0"), "get_weather");
  EXPECT_EQ(kimi_call_name("functions.a.b:12"), "a.b");
  EXPECT_EQ(kimi_call_name("f:3"), "f");
  EXPECT_EQ(kimi_call_name("functions.f"), "");
  EXPECT_EQ(kimi_call_name("functions.f:"), "");
  EXPECT_EQ(kimi_call_name("functions.f:x"), "");
}

// Any tokens whatever: the text is valid UTF-8, calls are numbered in order, and the answer cut
// anywhere begins like the whole one.
TEST_F(KimiOutput, HoldsItsPromisesOnRandomTokens) {
  Rng rng(17);
  const Token first = tokenizer_.vocabulary().size();
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<Token> answer;
    for (uint64_t n = rng.next_below(40); n > 0; --n) {
      const bool mark = rng.next_below(2) == 0;
      answer.push_back(mark ? first + static_cast<Token>(rng.next_below(24))
                            : static_cast<Token>(rng.next_below(static_cast<uint64_t>(first))));
      if (rng.next_below(4) == 0) {
        for (const Token token : tokenizer_.encode("functions.f:0")) answer.push_back(token);
      }
    }
    const KimiOutputParser::Options options{.start = trial % 2 == 0 ? AnswerStart::in_thoughts
                                                                    : AnswerStart::may_think};
    KimiOutputParser parser(tokenizer_, marks_, options);
    std::vector<OutputDelta> deltas;
    for (const Token token : answer) parser.push(token, &deltas);
    const std::vector<OutputDelta> streamed = deltas;
    parser.finish(&deltas);
    int32_t calls = 0;
    for (const OutputDelta& delta : deltas) {
      ASSERT_FALSE(first_invalid_utf8(delta.text).has_value());
      if (delta.kind == OutputDelta::Kind::tool_call_begin) {
        ASSERT_EQ(delta.call, calls++);
      }
    }
    const size_t cut = rng.next_below(answer.size() + 1);
    KimiOutputParser shorter(tokenizer_, marks_, options);
    std::vector<OutputDelta> part;
    for (size_t i = 0; i < cut; ++i) shorter.push(answer[i], &part);
    ASSERT_LE(part.size(), streamed.size());
    ASSERT_TRUE(std::equal(part.begin(), part.end(), streamed.begin()));
  }
}

}  // namespace
}  // namespace quire
