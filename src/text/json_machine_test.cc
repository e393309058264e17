#include "text/json_machine.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"

namespace quire {
namespace {

// How far `text` goes under `schema`: "done", "open" (more must come), or the offset of the first
// byte that is refused.
std::string verdict(const std::string& schema_text, std::string_view text) {
  JsonSchema schema;
  const auto node = schema.add_parameters(parse_json(schema_text).value());
  if (!node.ok()) return node.error().message;
  JsonMachine machine(node.value());
  for (size_t i = 0; i < text.size(); ++i) {
    if (!machine.push(schema, static_cast<uint8_t>(text[i]))) return std::to_string(i);
  }
  return machine.is_done() ? "done" : "open";
}

TEST(JsonMachine, TakesAnyObjectWithoutASchema) {
  for (const char* text :
       {R"({})", R"({"a":1})", R"({"a": [1, -0.5e+10, 0], "b": {"c": null}})",
        R"({ "a":"\u00e9\n"})", R"({"":[[],{},""]})", "{\"\xe5\x8c\x97\":true}"}) {
    EXPECT_EQ(verdict("null", text), "done") << text;
  }
  EXPECT_EQ(verdict("null", "{\"a\": 1"), "open");
}

TEST(JsonMachine, RefusesWhatIsNotJson) {
  EXPECT_EQ(verdict("null", "[1]"), "0");
  EXPECT_EQ(verdict("null", " {}"), "0");
  EXPECT_EQ(verdict("null", "{}}"), "2");
  EXPECT_EQ(verdict("null", "{,"), "1");
  EXPECT_EQ(verdict("null", "{\"a\" :"), "4");
  EXPECT_EQ(verdict("null", "{\"a\":01"), "6");
  EXPECT_EQ(verdict("null", "{\"a\":1.}"), "7");
  EXPECT_EQ(verdict("null", "{\"a\":-}"), "6");
  EXPECT_EQ(verdict("null", "{\"a\":nul}"), "8");
  EXPECT_EQ(verdict("null", "{\"a\":1,}"), "7");
  EXPECT_EQ(verdict("null", "{\"a\":[1,]"), "8");
  EXPECT_EQ(verdict("null", "{\"a\":  1"), "6");     // one space at most
  EXPECT_EQ(verdict("null", "{\"\n"), "2");          // a bare control character
  EXPECT_EQ(verdict("null", "{\"\\x"), "3");         // no such escape
  EXPECT_EQ(verdict("null", "{\"\\ud83d"), "5");     // a surrogate
  EXPECT_EQ(verdict("null", "{\"\xc0"), "2");        // not UTF-8
  EXPECT_EQ(verdict("null", "{\"\xe4\xbd\""), "4");  // a character cut short
}

constexpr char kWeather[] = R"({"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F",1,12]},
    "at":{"type":["number","null"]},"tags":{"type":"array","items":{"type":"boolean"}},
    "in":{"type":"object","properties":{"x":{"const":"y"}},"required":["x"]}},
    "required":["city"]})";

TEST(JsonMachine, FollowsTheSchema) {
  EXPECT_EQ(verdict(kWeather, R"({"city": "Paris", "days": 3, "unit": "F", "at": null})"), "done");
  EXPECT_EQ(verdict(kWeather, R"({"unit": 12, "city": "", "at": 1.5e3, "tags": [true, false]})"),
            "done");
  EXPECT_EQ(verdict(kWeather, R"({"unit": 1, "in": {"x": "y"}, "city": ""})"), "done");
  EXPECT_EQ(verdict(kWeather, "{}"), "1");                      // city is required
  EXPECT_EQ(verdict(kWeather, R"({"days": 3})"), "10");         // still
  EXPECT_EQ(verdict(kWeather, R"({"town)"), "3");               // no such name but tags
  EXPECT_EQ(verdict(kWeather, R"({"city": "", "city)"), "14");  // not twice
  EXPECT_EQ(verdict(kWeather, R"({"city": 1)"), "9");           // a string
  EXPECT_EQ(verdict(kWeather, R"({"days": 1.5)"), "10");        // an integer
  EXPECT_EQ(verdict(kWeather, R"({"unit": "K)"), "10");         // C or F
  EXPECT_EQ(verdict(kWeather, R"({"unit": 13)"), "10");         // 1 or 12
  EXPECT_EQ(verdict(kWeather, R"({"at": true)"), "7");          // a number or null
  EXPECT_EQ(verdict(kWeather, R"({"tags": [1)"), "10");         // booleans
  EXPECT_EQ(verdict(kWeather, R"({"in": {})"), "8");            // x is required
}

TEST(JsonMachine, HonoursClosedAndTypedObjects) {
  EXPECT_EQ(verdict(R"({"additionalProperties":false})", "{\"a"), "1");
  EXPECT_EQ(verdict(R"({"additionalProperties":false})", "{}"), "done");
  EXPECT_EQ(verdict(R"({"additionalProperties":{"type":"integer"}})", R"({"any": 1})"), "done");
  EXPECT_EQ(verdict(R"({"additionalProperties":{"type":"integer"}})", R"({"any": "x)"), "8");
  EXPECT_EQ(verdict(R"({"properties":{"a":{"$ref":"#"}}})", R"({"a": [{"b": 1}]})"), "done");
  EXPECT_EQ(verdict(R"({"properties":{"a":{}}})", R"({"a": 1, )"), "7");  // no name is left
}

TEST(JsonMachine, IsBounded) {
  std::string deep = "{\"a\":";
  for (int i = 1; i < JsonMachine::kDepthMax; ++i) deep += "[";
  EXPECT_EQ(verdict("null", deep), "open");
  EXPECT_EQ(verdict("null", deep + "["), std::to_string(deep.size()));
  const std::string digits(static_cast<size_t>(JsonMachine::kNumberBytesMax), '1');
  EXPECT_EQ(verdict("null", "{\"a\":" + digits + "}"), "done");
  EXPECT_EQ(verdict("null", "{\"a\":" + digits + "1"), "37");
}

TEST(JsonSchema, RefusesBadOnes) {
  EXPECT_NE(verdict(R"({"type":"nonsense"})", "{}"), "done");
  EXPECT_NE(verdict(R"({"properties":{"a":{"enum":[]}}})", "{}"), "done");
  EXPECT_NE(verdict(R"({"required":[1]})", "{}"), "done");
  EXPECT_NE(verdict(R"({"properties":[]})", "{}"), "done");
  std::string big = R"({"properties":{"a":{"enum":[)";
  for (int i = 0; i < 7000; ++i) big += format("%s\"value-%d\"", i == 0 ? "" : ",", i);
  EXPECT_NE(verdict(big + "]}}}", "{}"), "done");
}

// From every state there is a way on, and what comes to an end is JSON that the schema allows.
TEST(JsonMachine, NeverRunsIntoADeadEnd) {
  JsonSchema schema;
  const int32_t node = schema.add_parameters(parse_json(kWeather).value()).value();
  Rng rng(23);
  int n_done = 0;
  for (int trial = 0; trial < 400; ++trial) {
    JsonMachine machine(trial % 2 == 0 ? node : schema.add_parameters(Json()).value());
    std::string text;
    while (!machine.is_done() && text.size() < 3000) {
      std::vector<uint8_t> allowed;
      for (int byte = 0; byte < 256; ++byte) {
        JsonMachine copy = machine;
        if (copy.push(schema, static_cast<uint8_t>(byte)))
          allowed.push_back(static_cast<uint8_t>(byte));
      }
      ASSERT_FALSE(allowed.empty()) << text;
      uint8_t byte = allowed[rng.next_below(allowed.size())];
      // Leans towards closing, so that most texts come to an end.
      for (const uint8_t closing : {uint8_t{'"'}, uint8_t{'}'}, uint8_t{']'}}) {
        const bool may = std::find(allowed.begin(), allowed.end(), closing) != allowed.end();
        if (may && rng.next_below(4) == 0) byte = closing;
      }
      ASSERT_TRUE(machine.push(schema, byte));
      text += static_cast<char>(byte);
    }
    if (!machine.is_done()) continue;
    ++n_done;
    // A free name may come twice, which our own reader refuses.
    const auto parsed = parse_json(text);
    if (trial % 2 == 0) {
      ASSERT_TRUE(parsed.ok()) << text;
      EXPECT_TRUE(parsed.value().contains("city")) << text;
    }
  }
  EXPECT_GT(n_done, 300);
}

}  // namespace
}  // namespace quire
