#include "base/json.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

void expect_refused(std::string_view text, std::string_view why, const JsonLimits& limits = {}) {
  const Result<Json> result = parse_json(text, limits);
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
}

TEST(Json, KeepsKeyOrderAndNumbers) {
  const Result<Json> value = parse_json(R"({"b": [1, -2, 1.5], "a": {"x": null, "y": "é"}})");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(dump_json(value.value()), R"({"b":[1,-2,1.5],"a":{"x":null,"y":"é"}})");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{} x", "// c\n{}", "NaN", "[Infinity]", "{'a':1}",
                           "[1e400]", "\"\\ud800\"", "\"\\udc00\\ud800\"", "[01]"}) {
    expect_refused(text, "byte");
  }
  expect_refused("\xef\xbb\xbf{}", "BOM");
  expect_refused("\"\xff\"", "UTF-8 at byte 1");
  expect_refused(std::string_view("{}\0", 3), "NUL at byte 2");
  expect_refused(std::string_view("[1,\0]", 5), "NUL at byte 3");
}

TEST(Json, RefusesDuplicateKeysAtAnyDepth) {
  expect_refused(R"({"a":1,"a":2})", "twice");
  expect_refused(R"([{"b":{"c":1,"c":1}}])", "twice");
  EXPECT_TRUE(parse_json(R"([{"a":1},{"a":1}])").ok());
}

TEST(Json, HoldsEveryLimit) {
  const JsonLimits limits{
      .bytes_max = 200, .depth_max = 3, .nodes_max = 6, .key_bytes_max = 4, .string_bytes_max = 8};
  EXPECT_TRUE(parse_json("[[[1]]]", limits).ok());
  expect_refused("[[[[1]]]]", "deeply", limits);
  EXPECT_TRUE(parse_json("[1,2,3,4,5]", limits).ok());
  expect_refused("[1,2,3,4,5,6]", "many", limits);
  expect_refused(R"({"abcde":1})", "key is too long", limits);
  expect_refused(R"("123456789")", "string is too long", limits);
  expect_refused(std::string(201, ' '), "at most 200", limits);
}

TEST(Json, DeepNestingIsRefusedNotRecursed) {
  expect_refused(std::string(5'000'000, '['), "deeply");
}

TEST(Json, DumpIsOneLineForEveryReader) {
  EXPECT_EQ(dump_json(Json("a\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xc2\xa0z\n")),
            "\"a\\u0085\\u2028\\u2029\xc2\xa0z\\n\"");
}

TEST(Json, DumpReplacesInvalidUtf8) { EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xef\xbf\xbd\""); }

}  // namespace
}  // namespace quire
