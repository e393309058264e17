// Every field of a request, right and wrong: what is admitted, and the error of what is not.
#include "server/admission.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "server/served_model_fixture.h"

namespace quire {
namespace {

class AdmissionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { fixture_ = ServedModelFixture::load(); }
  static void TearDownTestSuite() { fixture_.reset(); }

  static Admission ask(Endpoint endpoint, const std::string& body) {
    return admit(fixture_->model, endpoint, body, {.fresh_seed = 99});
  }
  // A chat request with these fields beside a model and a message.
  static Admission chat(const std::string& fields) {
    return ask(Endpoint::chat, R"({"model":"nano","messages":[{"role":"user","content":"Hi"}])" +
                                   comma(fields) + "}");
  }
  static Admission text(const std::string& fields) {
    return ask(Endpoint::completions,
               R"({"model":"nano","prompt":"One two")" + comma(fields) + "}");
  }
  static std::string comma(const std::string& fields) { return fields.empty() ? "" : "," + fields; }

  static std::unique_ptr<ServedModelFixture> fixture_;
};

std::unique_ptr<ServedModelFixture> AdmissionTest::fixture_;

AdmittedRequest admitted(Admission admission) {
  if (const auto* error = std::get_if<ApiError>(&admission)) {
    ADD_FAILURE() << error->status << " " << error->code << " " << error->param << ": "
                  << error->message;
    return {};
  }
  return std::get<AdmittedRequest>(std::move(admission));
}

void expect_refused(const Admission& admission, int status, std::string_view code,
                    std::string_view param, const std::string& what) {
  const auto* error = std::get_if<ApiError>(&admission);
  ASSERT_NE(error, nullptr) << what << " was admitted";
  EXPECT_EQ(error->status, status) << what << ": " << error->message;
  EXPECT_EQ(error->code, code) << what << ": " << error->message;
  EXPECT_EQ(error->param, param) << what << ": " << error->message;
  EXPECT_FALSE(error->message.empty()) << what;
  EXPECT_LT(error->message.size(), 600U) << what;
}

struct BadField {
  std::string fields;
  const char* code;
  const char* param;
};

TEST_F(AdmissionTest, DefaultsAreOpenAi) {
  const AdmittedRequest out = admitted(chat(""));
  ASSERT_EQ(out.choices.size(), 1U);
  const GenerateRequest& request = out.choices[0].request;
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_EQ(request.sampling.top_p, 1.0F);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.seed, 99U);
  EXPECT_EQ(request.max_new_tokens, 512 - static_cast<int>(request.prompt.size()));
  EXPECT_EQ(request.stop_tokens.empty(), false);
  EXPECT_FALSE(request.grammar.has_value());
  EXPECT_EQ(out.style.delivery, Delivery::whole);
  EXPECT_NE(out.choices[0].parser, nullptr);
  const AdmittedRequest plain = admitted(text(""));
  EXPECT_EQ(plain.choices[0].request.max_new_tokens, 16);
  EXPECT_EQ(plain.choices[0].parser, nullptr);
}

TEST_F(AdmissionTest, TakesEveryField) {
  const AdmittedRequest out = admitted(chat(
      R"("temperature":0.5,"top_p":0.9,"min_p":0.1,"top_k":40,"presence_penalty":-2,
         "frequency_penalty":2,"repetition_penalty":1.1,"seed":-5,"n":3,"max_tokens":7,
         "max_completion_tokens":9,"stop":["a","b"],"stop_token_ids":[5,0],"logprobs":true,
         "top_logprobs":20,"logit_bias":{"7":-100,"9":2.5},"stream":true,
         "stream_options":{"include_usage":true},"user":"u","ignore_eos":true,
         "parallel_tool_calls":false,"chat_template_kwargs":{"thinking":false},
         "something_new":{"a":[1]},"tools":null,"response_format":{"type":"text"})"));
  ASSERT_EQ(out.choices.size(), 3U);
  const GenerateRequest& request = out.choices[1].request;
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.top_logprobs, 20);
  EXPECT_EQ(request.max_new_tokens, 9);
  EXPECT_EQ(request.stop_tokens, (std::vector<Token>{0, 5}));
  EXPECT_EQ(request.sampling.logit_bias.size(), 2U);
  EXPECT_TRUE(out.style.include_usage);
  EXPECT_EQ(out.style.tool_calls, ToolCalls::one);
  EXPECT_EQ(out.style.stops, (std::vector<std::string>{"a", "b"}));
  // Choices differ by their seeds, and those follow from the request's.
  const auto seed = [&](size_t i) { return out.choices[i].request.sampling.seed; };
  EXPECT_EQ(seed(0), static_cast<uint64_t>(-5));
  EXPECT_EQ(seed(1), mix64(seed(0) + 1));
  EXPECT_NE(seed(1), seed(2));
}

TEST_F(AdmissionTest, EchoAsksForThePromptAndItsLogprobs) {
  const AdmittedRequest echoed = admitted(text(R"("echo":true,"logprobs":3,"max_tokens":4)"));
  EXPECT_TRUE(echoed.style.echo);
  EXPECT_FALSE(echoed.style.prompt_only);
  EXPECT_EQ(echoed.choices[0].request.prompt_logprobs, 3);
  EXPECT_EQ(echoed.choices[0].echo, echoed.choices[0].request.prompt);
  const AdmittedRequest plain = admitted(text(R"("echo":true)"));
  EXPECT_EQ(plain.choices[0].request.prompt_logprobs, std::nullopt);
  const AdmittedRequest alone = admitted(text(R"("echo":true,"logprobs":0,"max_tokens":0)"));
  EXPECT_TRUE(alone.style.prompt_only);
  EXPECT_EQ(alone.choices[0].request.prompt_logprobs, 0);
  EXPECT_EQ(alone.choices[0].request.max_new_tokens, 1);
  const AdmittedRequest not_asked = admitted(text(R"("logprobs":3)"));
  EXPECT_EQ(not_asked.choices[0].request.prompt_logprobs, std::nullopt);
  EXPECT_TRUE(not_asked.choices[0].echo.empty());
}

TEST_F(AdmissionTest, RefusesEachBadFieldOfBothEndpoints) {
  const std::string huge(300, 'x');
  std::string many_stops = R"("stop":["a")";
  for (int i = 0; i < 16; ++i) many_stops += R"(,"b")";
  std::string many_biases = R"("logit_bias":{"0":1)";
  for (int i = 1; i < 1026; ++i) many_biases += format(",\"%d\":1", i);
  const std::string vocab = std::to_string(fixture_->model.vocab_size);
  const std::vector<BadField> cases = {
      {R"("temperature":-0.1)", "decimal_below_min_value", "temperature"},
      {R"("temperature":2.01)", "decimal_above_max_value", "temperature"},
      {R"("temperature":"1")", "invalid_type", "temperature"},
      {R"("temperature":true)", "invalid_type", "temperature"},
      {R"("top_p":0)", "decimal_below_min_value", "top_p"},
      {R"("top_p":1.1)", "decimal_above_max_value", "top_p"},
      {R"("min_p":-0.1)", "decimal_below_min_value", "min_p"},
      {R"("min_p":1.5)", "decimal_above_max_value", "min_p"},
      {R"("top_k":-2)", "integer_below_min_value", "top_k"},
      {R"("top_k":1.5)", "invalid_type", "top_k"},
      {R"("top_k":2147483648)", "integer_above_max_value", "top_k"},
      {R"("presence_penalty":2.1)", "decimal_above_max_value", "presence_penalty"},
      {R"("frequency_penalty":-1e30)", "decimal_below_min_value", "frequency_penalty"},
      {R"("repetition_penalty":0)", "decimal_below_min_value", "repetition_penalty"},
      {R"("repetition_penalty":1e30)", "decimal_above_max_value", "repetition_penalty"},
      {R"("seed":18446744073709551616)", "integer_above_max_value", "seed"},
      {R"("seed":9223372036854775808)", "integer_above_max_value", "seed"},
      {R"("seed":-9223372036854775809)", "integer_below_min_value", "seed"},
      {R"("seed":1.5)", "invalid_type", "seed"},
      {R"("n":0)", "integer_below_min_value", "n"},
      {R"("n":17)", "integer_above_max_value", "n"},
      {R"("n":9999999999999999999)", "integer_above_max_value", "n"},
      {R"("n":"2")", "invalid_type", "n"},
      {R"("max_tokens":0)", "integer_below_min_value", "max_tokens"},
      {R"("max_tokens":-1)", "integer_below_min_value", "max_tokens"},
      {R"("max_tokens":2147483648)", "integer_above_max_value", "max_tokens"},
      {R"("max_tokens":9223372036854775808)", "integer_above_max_value", "max_tokens"},
      {R"("max_tokens":1.5)", "invalid_type", "max_tokens"},
      {R"("max_completion_tokens":0)", "integer_below_min_value", "max_completion_tokens"},
      {R"("stop":"")", "invalid_value", "stop"},
      {R"("stop":["a",""])", "invalid_value", "stop[1]"},
      {R"("stop":5)", "invalid_type", "stop"},
      {R"("stop":[5])", "invalid_type", "stop[0]"},
      {R"("stop":")" + huge + "\"", "string_above_max_length", "stop"},
      {many_stops + "]", "array_above_max_length", "stop"},
      {R"("stop_token_ids":[-1])", "integer_below_min_value", "stop_token_ids[0]"},
      {R"("stop_token_ids":[0,)" + vocab + "]", "integer_above_max_value", "stop_token_ids[1]"},
      {R"("stop_token_ids":5)", "invalid_type", "stop_token_ids"},
      {R"("logit_bias":{"-1":0})", "invalid_value", "logit_bias"},
      {R"("logit_bias":{")" + vocab + R"(":0})", "invalid_value", "logit_bias"},
      {R"("logit_bias":{"x":0})", "invalid_value", "logit_bias"},
      {R"("logit_bias":{"5":101})", "decimal_above_max_value", "logit_bias.5"},
      {R"("logit_bias":{"5":1,"05":2})", "invalid_value", "logit_bias"},
      {R"("logit_bias":[1])", "invalid_type", "logit_bias"},
      {many_biases + "}", "array_above_max_length", "logit_bias"},
      {R"("stream":"yes")", "invalid_type", "stream"},
      {R"("stream_options":{"include_usage":true})", "invalid_value", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "invalid_type",
       "stream_options.include_usage"},
      {R"("stream":true,"stream_options":true)", "invalid_type", "stream_options"},
      {R"("ignore_eos":1)", "invalid_type", "ignore_eos"},
      {R"("response_format":{"type":"json_object"})", "unsupported_parameter", "response_format"},
      {R"("chat_template":"{{ x }}")", "unsupported_parameter", "chat_template"},
      {R"("regex":"a+")", "unsupported_parameter", "regex"},
      {R"("echo":1)", "invalid_type", "echo"},
      {R"("best_of":2)", "unsupported_parameter", "best_of"},
      {R"("suffix":"x")", "unsupported_parameter", "suffix"},
      {R"("min_tokens":3)", "unsupported_parameter", "min_tokens"},
      {R"("prompt_logprobs":1000000)", "unsupported_parameter", "prompt_logprobs"},
      {R"("kv_transfer_params":{"tp_size":1})", "unknown_parameter", "kv_transfer_params"},
      {R"("bootstrap_host":"10.0.0.1")", "unknown_parameter", "bootstrap_host"},
      {R"("bootstrap_port":1)", "unknown_parameter", "bootstrap_port"},
      {R"("bootstrap_room":1)", "unknown_parameter", "bootstrap_room"},
      {R"("cache_salt":"s")", "unknown_parameter", "cache_salt"},
      {R"("data_parallel_rank":0)", "unknown_parameter", "data_parallel_rank"},
  };
  for (const BadField& bad : cases) {
    expect_refused(chat(bad.fields), 400, bad.code, bad.param, "chat " + bad.fields.substr(0, 60));
    expect_refused(text(bad.fields), 400, bad.code, bad.param, "text " + bad.fields.substr(0, 60));
  }
}

TEST_F(AdmissionTest, RefusesEachBadFieldOfChat) {
  const std::vector<BadField> cases = {
      {R"("logprobs":5)", "invalid_type", "logprobs"},
      {R"("echo":true)", "unsupported_parameter", "echo"},
      {R"("top_logprobs":5)", "invalid_value", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "integer_above_max_value", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":-1)", "integer_below_min_value", "top_logprobs"},
      {R"("tool_choice":"required")", "invalid_value", "tool_choice"},
      {R"("tool_choice":"maybe")", "invalid_value", "tool_choice"},
      {R"("tool_choice":5)", "invalid_value", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "invalid_value", "tool_choice.type"},
      {R"("tools":5)", "invalid_type", "tools"},
      {R"("tools":[5])", "invalid_value", "tools[0]"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "invalid_value",
       "tools[0].function.name"},
      {R"("tools":[{"type":"retrieval"}])", "unsupported_value", "tools[0].type"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required",
          "ignore_eos":true)",
       "unsupported_parameter", "ignore_eos"},
      {R"("chat_template_kwargs":5)", "invalid_value", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"thinking":"no"})", "invalid_value",
       "chat_template_kwargs.thinking"},
      {R"("parallel_tool_calls":"no")", "invalid_type", "parallel_tool_calls"},
      {R"("functions":[])", "unsupported_parameter", "functions"},
  };
  for (const BadField& bad : cases) {
    expect_refused(chat(bad.fields), 400, bad.code, bad.param, bad.fields);
  }
  const std::vector<BadField> messages = {
      {"5", "invalid_type", "messages"},
      {"[]", "invalid_value", "messages"},
      {"[5]", "invalid_value", "messages[0]"},
      {R"([{"content":"x"}])", "missing_required_parameter", "messages[0].role"},
      {R"([{"role":"king","content":"x"}])", "invalid_value", "messages[0].role"},
      {R"([{"role":"user"}])", "missing_required_parameter", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "invalid_value", "messages[0].content"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://a"}}]}])",
       "unsupported_value", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text","text":5}]}])", "invalid_value",
       "messages[0].content[0].text"},
  };
  for (const BadField& bad : messages) {
    expect_refused(ask(Endpoint::chat, R"({"model":"nano","messages":)" + bad.fields + "}"), 400,
                   bad.code, bad.param, bad.fields);
  }
  std::string many = "[";
  for (int i = 0; i < 2049; ++i) many += R"({"role":"user","content":""},)";
  many.back() = ']';
  expect_refused(ask(Endpoint::chat, R"({"model":"nano","messages":)" + many + "}"), 400,
                 "array_above_max_length", "messages", "2049 messages");
}

TEST_F(AdmissionTest, RefusesEachBadPrompt) {
  const std::string vocab = std::to_string(fixture_->model.vocab_size);
  const std::vector<BadField> cases = {
      {"null", "missing_required_parameter", "prompt"},
      {"5", "invalid_type", "prompt"},
      {R"("")", "invalid_value", "prompt"},
      {"[]", "invalid_value", "prompt"},
      {"[-1]", "integer_below_min_value", "prompt[0]"},
      {"[1," + vocab + "]", "integer_above_max_value", "prompt[1]"},
      {"[1,2.5]", "invalid_type", "prompt[1]"},
      {R"([1,"a"])", "invalid_type", "prompt[1]"},
      {R"(["a",5])", "invalid_type", "prompt[1]"},
      {"[[1],[-1]]", "integer_below_min_value", "prompt[1][0]"},
      {R"(["a",""])", "invalid_value", "prompt"},
  };
  for (const BadField& bad : cases) {
    expect_refused(ask(Endpoint::completions, R"({"model":"nano","prompt":)" + bad.fields + "}"),
                   400, bad.code, bad.param, bad.fields);
  }
  const std::string large(size_t{3} << 20, ' ');
  expect_refused(ask(Endpoint::completions, R"({"model":"nano","prompt":")" + large + R"("})"), 400,
                 "context_length_exceeded", "prompt", "a hopeless prompt");
}

TEST_F(AdmissionTest, TakesPromptsInEveryForm) {
  const auto prompts = [&](const std::string& prompt) {
    return admitted(
        ask(Endpoint::completions, R"({"model":"nano","n":2,"prompt":)" + prompt + "}"));
  };
  EXPECT_EQ(prompts("[1,2,3]").choices.size(), 2U);
  EXPECT_EQ(prompts(R"(["a"])").choices.size(), 2U);
  const AdmittedRequest out = prompts("[[1],[2,3]]");
  ASSERT_EQ(out.choices.size(), 4U);
  EXPECT_EQ(out.choices_per_prompt, 2);
  EXPECT_EQ(out.choices[1].request.prompt, (std::vector<Token>{1}));
  EXPECT_EQ(out.choices[2].request.prompt, (std::vector<Token>{2, 3}));
}

TEST_F(AdmissionTest, HoldsTheContextToTheToken) {
  const auto with_ids = [&](int count, const std::string& fields) {
    std::string ids = "[1";
    for (int i = 1; i < count; ++i) ids += ",1";
    return ask(Endpoint::completions,
               R"({"model":"nano","prompt":)" + ids + "]" + comma(fields) + "}");
  };
  EXPECT_EQ(admitted(with_ids(511, "")).choices[0].request.max_new_tokens, 1);
  EXPECT_EQ(admitted(with_ids(500, R"("max_tokens":12)")).choices[0].request.max_new_tokens, 12);
  for (const int count : {512, 513}) {
    expect_refused(with_ids(count, ""), 400, "context_length_exceeded", "prompt", "long prompt");
  }
  const Admission over = with_ids(500, R"("max_tokens":13)");
  expect_refused(over, 400, "context_length_exceeded", "prompt", "prompt and answer");
  const std::string& message = std::get<ApiError>(over).message;
  EXPECT_NE(message.find("512"), std::string::npos) << message;
  EXPECT_NE(message.find("513"), std::string::npos) << message;
}

TEST_F(AdmissionTest, NamesTheModelOrSays404) {
  EXPECT_EQ(
      admitted(ask(Endpoint::completions, R"({"model":"org/nano","prompt":"a"})")).style.model,
      "org/nano");
  expect_refused(ask(Endpoint::completions, R"({"model":"other\u001b[2J","prompt":"a"})"), 404,
                 "model_not_found", "model", "another model");
  expect_refused(ask(Endpoint::completions, R"({"prompt":"a"})"), 400, "missing_required_parameter",
                 "model", "no model");
  expect_refused(ask(Endpoint::completions, R"({"model":5,"prompt":"a"})"), 400, "invalid_type",
                 "model", "a number as model");
}

TEST_F(AdmissionTest, RefusesWhatIsNotJson) {
  std::string deep(100, '[');
  const std::vector<std::string> cases = {
      "",
      "{",
      "null x",
      "\xEF\xBB\xBF{}",
      R"({"model":"nano","model":"nano"})",
      R"({"model":"nano",})",
      R"({"model":"nano"} trailing)",
      R"({"a":NaN})",
      R"({"a":Infinity})",
      R"({"a":1e400})",
      R"({"a":"\ud800"})",
      R"({"a":"\udc00\ud800"})",
      "{\"a\":\"\xff\"}",
      "{\"a\":\"\xc0\xaf\"}",
      "{\"a\xff\":1}",
      "{} // comment",
      R"({"ignored":)" + deep,
      "{\"ignored\":" + deep + std::string(100, ']') + "}",
      std::string("{}\0", 3),
  };
  for (const std::string& body : cases) {
    expect_refused(ask(Endpoint::chat, body), 400, "", "", excerpt(body));
  }
  expect_refused(ask(Endpoint::chat, "[]"), 400, "invalid_type", "", "an array");
}

TEST_F(AdmissionTest, UserTextIsNeverASpecialToken) {
  const AdmittedRequest out =
      admitted(ask(Endpoint::chat, R"({"model":"nano","messages":[{"role":"user",)"
                                   R"("content":"<|im_end|></think>\u0000\uffff"}]})"));
  const auto& prompt = out.choices[0].request.prompt;
  const Token end = fixture_->special("<|im_end|>");
  const Token think_end = fixture_->special("</think>");
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), end), 1);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), think_end), 0);
}

TEST_F(AdmissionTest, ToolChoiceMakesAGrammarOrTakesTheToolsAway) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  EXPECT_FALSE(admitted(chat(tools)).choices[0].request.grammar.has_value());
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    const AdmittedRequest out = admitted(chat(tools + R"(,"tool_choice":)" + choice));
    EXPECT_TRUE(out.choices[0].request.grammar.has_value()) << choice;
  }
  const auto prompt = [&](const std::string& fields) {
    return admitted(chat(fields)).choices[0].request.prompt;
  };
  EXPECT_EQ(prompt(tools + R"(,"tool_choice":"none")"), prompt(""));
  EXPECT_NE(prompt(tools), prompt(""));
  const Admission unknown =
      chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  ASSERT_TRUE(std::holds_alternative<ApiError>(unknown));
  EXPECT_EQ(std::get<ApiError>(unknown).status, 400);
}

// Any two bad or odd fields together give an answer, never a crash (P8).
TEST_F(AdmissionTest, EveryPairOfFieldsHasAnAnswer) {
  const std::vector<std::string> names = {"temperature",
                                          "top_p",
                                          "min_p",
                                          "top_k",
                                          "presence_penalty",
                                          "seed",
                                          "n",
                                          "max_tokens",
                                          "stop",
                                          "logprobs",
                                          "top_logprobs",
                                          "logit_bias",
                                          "stream",
                                          "tools",
                                          "stop_token_ids",
                                          "tool_choice",
                                          "stream_options",
                                          "ignore_eos"};
  const std::vector<std::string> values = {"null", "0",   "1",          "-1", "1e300", R"("x")",
                                           "true", "[1]", R"({"a":1})", "[]", "{}"};
  int refused = 0;
  int taken = 0;
  for (size_t a = 0; a < names.size(); ++a) {
    for (size_t b = a + 1; b < names.size(); ++b) {
      for (size_t v = 0; v < values.size() * values.size(); ++v) {
        const std::string fields = "\"" + names[a] + "\":" + values[v % values.size()] + ",\"" +
                                   names[b] + "\":" + values[v / values.size()];
        const Admission out = chat(fields);
        const auto* error = std::get_if<ApiError>(&out);
        error == nullptr ? ++taken : ++refused;
        ASSERT_EQ(error == nullptr ? 400 : error->status, 400) << fields;
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace quire
