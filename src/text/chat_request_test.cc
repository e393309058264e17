#include "text/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace quire {
namespace {

using ::testing::StartsWith;

std::string refusal(const std::string& body) {
  const auto parsed = parse_chat_request(parse_json(body).value());
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(ChatRequest, ReadsAWholeChat) {
  const auto parsed = parse_chat_request(parse_json(R"({"messages":[
      {"role":"developer","content":"S"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"bo"},
      {"role":"assistant","content":null,"reasoning_content":"R","tool_calls":[
        {"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
        {"type":"function","function":{"name":"f","arguments":{"a":1}}}]},
      {"role":"tool","tool_call_id":"functions.f:0","content":"out"}],
      "tools":[{"type":"function","function":{"name":"f"}}],
      "add_generation_prompt":false,"template_kwargs":{"thinking":false},"unknown":1})")
                                             .value());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const ChatRequest& chat = parsed.value();
  ASSERT_EQ(chat.messages.size(), 4U);
  EXPECT_EQ(chat.messages[0].role, ChatRole::system);
  EXPECT_EQ(chat.messages[1].content, "ab");
  EXPECT_EQ(chat.messages[1].name, "bo");
  EXPECT_EQ(chat.messages[2].content, "");
  EXPECT_EQ(chat.messages[2].reasoning_content, "R");
  ASSERT_EQ(chat.messages[2].tool_calls.size(), 2U);
  EXPECT_EQ(chat.messages[2].tool_calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(chat.messages[2].tool_calls[1].id, "");
  EXPECT_EQ(chat.messages[2].tool_calls[1].arguments, "{\"a\": 1}");
  EXPECT_EQ(chat.messages[3].tool_call_id, "functions.f:0");
  EXPECT_EQ(chat.tools.size(), 1U);
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_EQ(chat.template_kwargs["thinking"], false);
}

TEST(ChatRequest, NamesThePathOfWhatIsWrong) {
  EXPECT_THAT(refusal("[]"), StartsWith("body: "));
  EXPECT_THAT(refusal("{}"), StartsWith("messages: missing"));
  EXPECT_THAT(refusal(R"({"messages":[]})"), StartsWith("messages: "));
  EXPECT_THAT(refusal(R"({"messages":["x"]})"), StartsWith("messages[0]: "));
  EXPECT_THAT(refusal(R"({"messages":[{"content":"x"}]})"), StartsWith("messages[0].role: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"root","content":"x"}]})"),
              StartsWith("messages[0].role: \"root\""));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"user"}]})"), StartsWith("messages[0].content: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"user","content":7}]})"),
              StartsWith("messages[0].content: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"user","content":"x"},
                 {"role":"user","content":[{"type":"text","text":7}]}]})"),
              StartsWith("messages[1].content[0].text: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"user","content":"x","tool_calls":[{}]}]})"),
              StartsWith("messages[0].tool_calls: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})"),
              StartsWith("messages[0].tool_calls[0].function.name: "));
  EXPECT_THAT(refusal(R"({"messages":[{"role":"assistant","tool_calls":[
                          {"function":{"name":"f","arguments":[1]}}]}]})"),
              StartsWith("messages[0].tool_calls[0].function.arguments: "));
}

TEST(ChatRequest, ChecksToolsAndTemplateArguments) {
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}],)";
  EXPECT_EQ(refusal(chat + R"("tools":null,"template_kwargs":null})"), "accepted");
  EXPECT_THAT(refusal(chat + R"("tools":{}})"), StartsWith("tools: "));
  EXPECT_THAT(refusal(chat + R"("tools":[{"type":"function"}]})"),
              StartsWith("tools[0].function: "));
  EXPECT_THAT(refusal(chat + R"("tools":[{"type":"function","function":{"name":"a b"}}]})"),
              StartsWith("tools[0].function.name: "));
  EXPECT_THAT(refusal(chat + R"("tools":[{"type":"function","function":
                                {"name":"a","parameters":[]}}]})"),
              StartsWith("tools[0].function.parameters: "));
  EXPECT_THAT(refusal(chat + R"("template_kwargs":[]})"), StartsWith("template_kwargs: "));
  EXPECT_THAT(refusal(chat + R"("add_generation_prompt":1})"),
              StartsWith("add_generation_prompt: "));
}

TEST(ChatRequest, TellsUnsupportedFromWrong) {
  const auto image = parse_chat_request(
      parse_json(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})").value());
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::unsupported);
  EXPECT_THAT(image.error().message, StartsWith("messages[0].content[0].type: "));
}

TEST(ChatRequest, HoldsItsLimits) {
  Json message;
  message["role"] = "user";
  message["content"] = "x";
  Json body;
  body["messages"] = Json(std::vector<Json>(3, message));
  EXPECT_TRUE(parse_chat_request(body, {.messages_max = 3}).ok());
  EXPECT_FALSE(parse_chat_request(body, {.messages_max = 2}).ok());
  body["messages"][0]["name"] = std::string(257, 'n');
  EXPECT_FALSE(parse_chat_request(body).ok());
}

TEST(FunctionName, IsOpenAis) {
  EXPECT_TRUE(is_function_name("get_Weather-2"));
  EXPECT_TRUE(is_function_name(std::string(64, 'a')));
  EXPECT_FALSE(is_function_name(std::string(65, 'a')));
  EXPECT_FALSE(is_function_name(""));
  EXPECT_FALSE(is_function_name("a.b"));
}

}  // namespace
}  // namespace quire
