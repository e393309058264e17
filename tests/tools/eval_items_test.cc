#include "tools/eval_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "base/temp_folder.h"
#include "tools/distribution.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr EvalTokens kTokens{.thoughts_end = 90, .turn_end = 91};

bool right(const std::vector<Token>& expected, const std::vector<Token>& generated) {
  return is_right({.expected = expected}, generated, kTokens);
}

TEST(EvalItems, WhatIsSaidAfterTheLastThoughtsCounts) {
  EXPECT_TRUE(right({1, 2}, {1, 2, 91}));
  EXPECT_TRUE(right({1, 2}, {7, 8, 90, 1, 2, 91}));
  EXPECT_TRUE(right({1, 2}, {7, 90, 5, 90, 1, 2, 91}));
  EXPECT_TRUE(right({}, {7, 90, 91}));
}

TEST(EvalItems, AnythingElseIsWrong) {
  EXPECT_FALSE(right({1, 2}, {1, 2}));             // the turn did not end
  EXPECT_FALSE(right({1, 2}, {}));                 // nothing came
  EXPECT_FALSE(right({1, 2}, {1, 91}));            // too short
  EXPECT_FALSE(right({1, 2}, {1, 2, 3, 91}));      // too long
  EXPECT_FALSE(right({1, 2}, {1, 2, 90, 91}));     // said in its thoughts only
  EXPECT_FALSE(right({1, 2}, {7, 90, 2, 1, 91}));  // another order
}

class ItemsFile : public testing::Test {
 protected:
  Result<std::vector<EvalItem>> read(const std::string& text, size_t limit = SIZE_MAX) {
    const std::string path = folder_ / "items.jsonl";
    std::ofstream(path) << text;
    return read_eval_items(path, limit);
  }
  static std::string line(const std::string& id) {
    return R"({"id":")" + id +
           R"(","task":"t","turns":[{"prompt_ids":[1,2],"expected_ids":[3],"max_new_tokens":4}]})";
  }

  TempFolder folder_;
};

TEST_F(ItemsFile, ReadsLinesUpToTheLimit) {
  const std::string text = line("a") + "\n\n" + line("b") + "\n" + line("c");
  EXPECT_EQ(read(text).value().size(), 3U);
  const std::vector<EvalItem> items = read(text, 2).value();
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[1].id, "b");
  ASSERT_EQ(items[1].turns.size(), 1U);
  EXPECT_THAT(items[1].turns[0].prompt, ElementsAre(1, 2));
  EXPECT_THAT(items[1].turns[0].expected, ElementsAre(3));
  EXPECT_EQ(items[1].turns[0].max_new_tokens, 4);
}

TEST_F(ItemsFile, BadLinesAreNamed) {
  const auto error = [&](const std::string& second) {
    const Result<std::vector<EvalItem>> items = read(line("a") + "\n" + second);
    return items.ok() ? std::string("no error") : items.error().message;
  };
  EXPECT_THAT(error("{"), HasSubstr("line 2"));
  EXPECT_THAT(error("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error(R"({"id":"a","task":"t"})"), HasSubstr("expected \"turns\""));
  EXPECT_THAT(error(R"({"id":"a","task":"t","turns":[]})"), HasSubstr("at least one turn"));
  EXPECT_THAT(error(R"({"id":"a","task":"t","turns":[{"prompt_ids":[-1]}]})"),
              HasSubstr("\"prompt_ids\": expected integers"));
}

TEST(Distribution, NearestRanks) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Json found = describe_distribution(values);
  EXPECT_DOUBLE_EQ(found["mean"].get<double>(), 50.5);
  EXPECT_EQ(found["median"].get<double>(), 50);
  EXPECT_EQ(found["p95"].get<double>(), 95);
  EXPECT_EQ(found["p99"].get<double>(), 99);
  EXPECT_EQ(describe_distribution({7.0})["p99"].get<double>(), 7);
  EXPECT_TRUE(describe_distribution({}).is_null());
}

}  // namespace
}  // namespace quire
