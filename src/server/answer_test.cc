// Answers as state machines: tokens in at every grouping, the same text out; what a client reads.
#include "server/answer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/admission.h"
#include "server/served_model_fixture.h"

namespace quire {
namespace {

class AnswerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { fixture_ = ServedModelFixture::load(); }
  static void TearDownTestSuite() { fixture_.reset(); }

  static std::vector<Token> encode(std::string_view text) {
    return fixture_->tokenizer.encode(text);
  }
  static void append(std::vector<Token>* out, std::string_view text) {
    for (const Token token : encode(text)) out->push_back(token);
  }

  // An answer to a chat with these fields beside a model and a message.
  static std::unique_ptr<Answer> chat(const std::string& fields) {
    return make(Endpoint::chat, R"("messages":[{"role":"user","content":"Hi"}])" + fields);
  }
  static std::unique_ptr<Answer> text(const std::string& fields) {
    return make(Endpoint::completions, R"("prompt":"Hi")" + fields);
  }
  static std::unique_ptr<Answer> make(Endpoint endpoint, const std::string& fields) {
    Admission admission =
        admit(fixture_->model, endpoint, R"({"model":"nano",)" + fields + "}", {});
    AdmittedRequest admitted = std::get<AdmittedRequest>(std::move(admission));
    return std::make_unique<Answer>(fixture_->model, &admitted, AnswerLabel{"0123", 1700000000});
  }

  static std::unique_ptr<ServedModelFixture> fixture_;
};

std::unique_ptr<ServedModelFixture> AnswerTest::fixture_;

RequestOutput output(std::vector<Token> tokens, std::optional<FinishReason> finish = {}) {
  RequestOutput out{.finish = finish, .prompt_tokens = 10, .cached_tokens = 4};
  for (const Token token : tokens) {
    out.tokens.push_back({.token = token, .logprob = -0.5F, .top = {{token, -0.5F}}});
  }
  return out;
}

// What a client joins from a stream of one choice.
struct Joined {
  std::string reasoning, content, calls, finish;
  int events = 0;
  bool done = false;
  Json usage, error;
};

void join(const std::string& events, Joined* out) {
  size_t at = 0;
  while (at < events.size()) {
    const size_t end = events.find("\n\n", at);
    ASSERT_NE(end, std::string::npos) << events;
    const std::string line = events.substr(at, end - at);
    at = end + 2;
    ASSERT_EQ(line.substr(0, 6), "data: ");
    ASSERT_EQ(line.find('\n'), std::string::npos);
    ++out->events;
    if (line == "data: [DONE]") {
      out->done = true;
      continue;
    }
    const Json event = parse_json(line.substr(6)).value();
    if (event.contains("error")) {
      out->error = event["error"];
      continue;
    }
    if (event.contains("usage") && !event["usage"].is_null()) out->usage = event["usage"];
    for (const Json& choice : event["choices"]) {
      if (choice.contains("text")) out->content += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) out->finish = choice["finish_reason"];
      if (!choice.contains("delta")) continue;
      const Json& delta = choice["delta"];
      out->content += delta.value("content", "");
      out->reasoning += delta.value("reasoning_content", "");
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        if (call.contains("id"))
          out->calls += "[" + call["function"]["name"].get<std::string>() + "]";
        out->calls += call["function"]["arguments"].get<std::string>();
      }
    }
  }
}

// Feeds `tokens` in groups of `group`, then the end.
Joined stream(Answer& answer, const std::vector<Token>& tokens, size_t group, FinishReason finish) {
  Joined out;
  for (size_t at = 0; at < tokens.size(); at += group) {
    const size_t end = std::min(at + group, tokens.size());
    const bool last = end == tokens.size();
    AnswerStep step = answer.push(0, output({tokens.begin() + static_cast<ptrdiff_t>(at),
                                             tokens.begin() + static_cast<ptrdiff_t>(end)},
                                            last ? std::optional(finish) : std::nullopt));
    join(step.events, &out);
    if (step.done) break;
  }
  return out;
}

TEST_F(AnswerTest, ChatStreamIsTheSameHoweverItIsCut) {
  const std::string tools =
      R"(,"stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function",)"
      R"("function":{"name":"get_time","parameters":{"type":"object"}}}])";
  std::vector<Token> tokens = encode("Let me see.");
  tokens.push_back(fixture_->special("</think>"));
  append(&tokens, "It is \xF0\x9F\x95\x90 now.");
  tokens.push_back(fixture_->special("<|tool_calls_section_begin|>"));
  tokens.push_back(fixture_->special("<|tool_call_begin|>"));
  append(&tokens, "functions.get_time:0");
  tokens.push_back(fixture_->special("<|tool_call_argument_begin|>"));
  append(&tokens, R"({"zone": "UTC"})");
  tokens.push_back(fixture_->special("<|tool_call_end|>"));
  tokens.push_back(fixture_->special("<|tool_calls_section_end|>"));
  tokens.push_back(fixture_->special("<|im_end|>"));
  for (const size_t group : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, tokens.size()}) {
    const auto answer = chat(tools);
    const Joined out = stream(*answer, tokens, group, FinishReason::stop);
    EXPECT_EQ(out.reasoning, "Let me see.") << group;
    EXPECT_EQ(out.content, "It is \xF0\x9F\x95\x90 now.") << group;
    EXPECT_EQ(out.calls, R"([get_time]{"zone": "UTC"})") << group;
    EXPECT_EQ(out.finish, "tool_calls") << group;
    EXPECT_TRUE(out.done) << group;
    EXPECT_EQ(out.usage["completion_tokens"], tokens.size());
    EXPECT_EQ(out.usage["prompt_tokens_details"]["cached_tokens"], 4);
  }
}

TEST_F(AnswerTest, OneCallEndsTheAnswerWhenParallelCallsAreOff) {
  const auto answer = chat(
      R"(,"stream":true,"parallel_tool_calls":false,"chat_template_kwargs":{"thinking":false},)"
      R"("tools":[{"type":"function","function":{"name":"f"}}])");
  std::vector<Token> tokens;
  tokens.push_back(fixture_->special("<|tool_calls_section_begin|>"));
  for (int i = 0; i < 2; ++i) {
    tokens.push_back(fixture_->special("<|tool_call_begin|>"));
    append(&tokens, "functions.f:" + std::to_string(i));
    tokens.push_back(fixture_->special("<|tool_call_argument_begin|>"));
    append(&tokens, "{}");
    tokens.push_back(fixture_->special("<|tool_call_end|>"));
  }
  const Joined out = stream(*answer, tokens, 1, FinishReason::length);
  EXPECT_EQ(out.calls, "[f]{}");
  EXPECT_EQ(out.finish, "tool_calls");
}

TEST_F(AnswerTest, StopStringsAreCutAtEverySplitAndEndTheChoice) {
  const std::vector<Token> tokens = encode("one two STOP three");
  for (size_t group = 1; group <= tokens.size(); ++group) {
    const auto answer = text(R"(,"stream":true,"stop":["STOP"])");
    Joined out;
    bool ended = false;
    for (size_t at = 0; at < tokens.size() && !ended; at += group) {
      const size_t end = std::min(at + group, tokens.size());
      const AnswerStep step =
          answer->push(0, output({tokens.begin() + static_cast<ptrdiff_t>(at),
                                  tokens.begin() + static_cast<ptrdiff_t>(end)}));
      join(step.events, &out);
      ended = step.done;
      EXPECT_EQ(step.choice_ended, step.done);
    }
    EXPECT_TRUE(ended) << group;
    EXPECT_EQ(out.content, "one two ") << group;
    EXPECT_EQ(out.finish, "stop");
    // What the engine says after that is nobody's.
    EXPECT_TRUE(answer->push(0, output({1}, FinishReason::aborted)).events.empty());
  }
}

TEST_F(AnswerTest, HeldTextComesOutAtTheEnd) {
  const auto answer = text(R"(,"stream":true,"stop":["abcdef"])");
  const Joined out = stream(*answer, encode("xabcde"), 1, FinishReason::length);
  EXPECT_EQ(out.content, "xabcde");
  EXPECT_EQ(out.finish, "length");
}

TEST_F(AnswerTest, BrokenCharactersBecomeReplacementsAndValidJson) {
  const auto answer = text(R"(,"logprobs":1)");
  std::vector<Token> tokens;
  for (Token token = 0; token < 256; ++token) tokens.push_back(token);
  const AnswerStep step = answer->push(0, output(tokens, FinishReason::length));
  ASSERT_TRUE(step.response.has_value());
  const auto body = parse_json(step.response->body);
  ASSERT_TRUE(body.ok()) << body.error().message;
  const Json& choice = body.value()["choices"][0];
  EXPECT_NE(choice["text"].get<std::string>().find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 256U);
}

// What the engine tells of a prompt: the tokens after the first, from the `first`-th on.
RequestOutput scores(const std::vector<Token>& prompt, size_t first, size_t end) {
  RequestOutput out{.prompt_tokens = static_cast<int32_t>(prompt.size())};
  for (size_t i = first; i < end; ++i) {
    out.prompt_tokens_scored.push_back(
        {.token = prompt[i], .logprob = -0.25F, .top = {{prompt[i], -0.25F}, {7, -3.0F}}});
  }
  return out;
}

TEST_F(AnswerTest, AnEchoedPromptComesWithItsLogprobs) {
  const std::string said = "Here is \u00e4 prompt";
  const std::string text = "Here is \xC3\xA4 prompt";
  const std::vector<Token> prompt = encode(text);
  ASSERT_GT(prompt.size(), 3U);
  const auto answer = make(Endpoint::completions,
                           R"("prompt":")" + said + R"(","echo":true,"logprobs":2,"max_tokens":9)");
  EXPECT_FALSE(answer->push(0, scores(prompt, 1, 3)).done);
  EXPECT_FALSE(answer->push(0, scores(prompt, 3, prompt.size())).done);
  const std::vector<Token> tokens = encode(" and on");
  const AnswerStep step = answer->push(0, output(tokens, FinishReason::length));
  ASSERT_TRUE(step.response.has_value());
  const Json choice = parse_json(step.response->body).value()["choices"][0];
  EXPECT_EQ(choice["text"], text + " and on");
  const Json& logprobs = choice["logprobs"];
  const size_t n = prompt.size() + tokens.size();
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(logprobs[list].size(), n) << list;
  }
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -0.25);
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 2U);
  EXPECT_EQ(logprobs["token_logprobs"][n - 1], -0.5);
  // Characters, not bytes: the umlaut is one.
  EXPECT_EQ(logprobs["text_offset"][prompt.size()], text.size() - 1);
}

TEST_F(AnswerTest, APromptAloneHasNoAnswerAndNoTokenOfOne) {
  const std::vector<Token> prompt = encode("Hi there");
  const auto answer =
      make(Endpoint::completions, R"("prompt":"Hi there","echo":true,"logprobs":0,"max_tokens":0)");
  EXPECT_FALSE(answer->push(0, scores(prompt, 1, prompt.size())).done);
  const Token end = fixture_->special("<|im_end|>");
  const AnswerStep step = answer->push(0, output({end}, FinishReason::stop));
  ASSERT_TRUE(step.response.has_value());
  const Json body = parse_json(step.response->body).value();
  EXPECT_EQ(body["choices"][0]["text"], "Hi there");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["logprobs"]["tokens"].size(), prompt.size());
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
}

TEST_F(AnswerTest, AnEchoedPromptIsStreamed) {
  const auto answer =
      make(Endpoint::completions, R"("prompt":"Hi there","echo":true,"stream":true,"stop":["Hi"])");
  // Stop strings are looked for in the answer alone.
  const Joined out = stream(*answer, encode(" you"), 1, FinishReason::length);
  EXPECT_EQ(out.content, "Hi there you");
  EXPECT_EQ(out.finish, "length");
}

TEST_F(AnswerTest, ATokenThatEndsACompletionIsListedWithItsProbability) {
  const auto answer = text(R"(,"logprobs":1)");
  std::vector<Token> tokens = encode("Yes");
  tokens.push_back(fixture_->special("<|im_end|>"));
  const AnswerStep step = answer->push(0, output(tokens, FinishReason::stop));
  const Json choice = parse_json(step.response->body).value()["choices"][0];
  EXPECT_EQ(choice["text"], "Yes");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), tokens.size());
  EXPECT_EQ(choice["logprobs"]["tokens"].back(), "<|im_end|>");
}

TEST_F(AnswerTest, WholeChatAnswer) {
  const auto answer = chat(R"(,"n":2,"logprobs":true,"top_logprobs":1)");
  std::vector<Token> tokens = encode("Hm.");
  const size_t n_thoughts = tokens.size();
  tokens.push_back(fixture_->special("</think>"));
  append(&tokens, "Yes");
  EXPECT_FALSE(answer->push(1, output(tokens, FinishReason::length)).done);
  tokens.push_back(fixture_->special("<|im_end|>"));
  const AnswerStep step = answer->push(0, output(tokens, FinishReason::stop));
  ASSERT_TRUE(step.done && step.response);
  const Json body = parse_json(step.response->body).value();
  EXPECT_EQ(body["id"], "chatcmpl-0123");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "nano");
  for (size_t i = 0; i < 2; ++i) {
    const Json& choice = body["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["message"]["role"], "assistant");
    EXPECT_EQ(choice["message"]["content"], "Yes");
    EXPECT_EQ(choice["message"]["reasoning_content"], "Hm.");
    EXPECT_EQ(choice["finish_reason"], i == 0 ? "stop" : "length");
    // The token that ended the answer is not part of it.
    EXPECT_EQ(choice["logprobs"]["content"].size(), tokens.size() - 1);
    EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 1U);
  }
  // One prompt, two choices.
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2 * tokens.size() - 1);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 2 * n_thoughts);
}

TEST_F(AnswerTest, FailuresBeforeTheFirstByteAreResponses) {
  struct Case {
    FailureKind failure;
    const char* code;
  };
  for (const Case& item : {Case{FailureKind::numerical, "numerical_error"},
                           Case{FailureKind::integrity, "kv_integrity_error"},
                           Case{FailureKind::dead_end, "grammar_dead_end"},
                           Case{FailureKind::internal, "internal_error"}}) {
    for (const char* fields : {"", R"(,"stream":true)"}) {
      RequestOutput failed = output({}, FinishReason::failed);
      failed.failure = item.failure;
      failed.error = corruption("page 7 at 0x7f00: a secret of the inside");
      const AnswerStep step = chat(fields)->push(0, failed);
      ASSERT_TRUE(step.done && step.response) << item.code;
      EXPECT_EQ(step.response->status, 500);
      const Json error = parse_json(step.response->body).value()["error"];
      EXPECT_EQ(error["code"], item.code);
      EXPECT_EQ(error["type"], "server_error");
      EXPECT_EQ(step.response->body.find("secret"), std::string::npos);
    }
  }
}

TEST_F(AnswerTest, AFailureInAStreamIsAnEventWithoutAnEndMark) {
  const auto answer = text(R"(,"stream":true,"n":2)");
  Joined out;
  join(answer->push(0, output(encode("some"))).events, &out);
  RequestOutput failed = output({}, FinishReason::failed);
  failed.failure = FailureKind::integrity;
  const AnswerStep step = answer->push(1, failed);
  join(step.events, &out);
  EXPECT_TRUE(step.done);
  EXPECT_TRUE(step.broken);
  EXPECT_EQ(out.error["code"], "kv_integrity_error");
  EXPECT_FALSE(out.done);
}

TEST_F(AnswerTest, ContentCannotForgeEvents) {
  const auto answer = text(R"(,"stream":true)");
  const std::string said = "a\n\ndata: [DONE]\n\n\r\n\xE2\x80\xA8{\"error\":1}";
  const Joined out = stream(*answer, encode(said), 1, FinishReason::length);
  EXPECT_EQ(out.content, said);
  EXPECT_TRUE(out.error.is_null());
}

}  // namespace
}  // namespace quire
