#include "tools/eval_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "base/text.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Right values: Wilson's formula at z = 1.959964, worked out by hand for 8 of 10 (0.4902, 0.9433)
// and 0 of 10 (0, 0.2775), as they stand in textbooks.
TEST(Proportions, WilsonOfKnownCounts) {
  EXPECT_NEAR(wilson_interval(8, 10).low, 0.4902, 5e-5);
  EXPECT_NEAR(wilson_interval(8, 10).high, 0.9433, 5e-5);
  EXPECT_NEAR(wilson_interval(0, 10).low, 0, 1e-12);
  EXPECT_NEAR(wilson_interval(0, 10).high, 0.2775, 5e-5);
  EXPECT_NEAR(wilson_interval(10, 10).low, 1 - 0.2775, 5e-5);
}

// Newcombe's own example, 56 of 70 against 48 of 80: 0.0524 to 0.3339 by his method 10.
TEST(Proportions, NewcombesExample) {
  const Interval found = difference_interval({.right = 48, .n = 80}, {.right = 56, .n = 70});
  EXPECT_NEAR(found.low, 0.0524, 5e-5);
  EXPECT_NEAR(found.high, 0.3339, 5e-5);
}

// By hand: 13 / 102 and 3 / 102, their difference -10 / 102, and its deviation
// sqrt((16 / 102 - (10 / 102)^2) / 102).
TEST(Proportions, PairedDifferenceByHand) {
  const Interval found = paired_difference_interval({.n = 100, .lost = 12, .won = 2});
  EXPECT_NEAR(found.low, -0.17251, 5e-6);
  EXPECT_NEAR(found.high, -0.02357, 5e-6);
  const Interval even = paired_difference_interval({.n = 4000, .lost = 10, .won = 10});
  EXPECT_NEAR(even.high, 0.0022971, 5e-8);
  EXPECT_NEAR(even.low, -even.high, 1e-15);
}

// Binomial tails: 2 * (1 + 14 + 91) / 2^14; 2 / 2^6; and nothing to split.
TEST(Proportions, McNemarExact) {
  EXPECT_NEAR(mcnemar_p({.n = 100, .lost = 12, .won = 2}), 106.0 / 8192, 1e-12);
  EXPECT_NEAR(mcnemar_p({.n = 9, .lost = 0, .won = 6}), 1.0 / 32, 1e-12);
  EXPECT_EQ(mcnemar_p({.n = 9}), 1);
  EXPECT_EQ(mcnemar_p({.n = 9, .lost = 3, .won = 3}), 1);
}

class CompareTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  // `pattern` has a character an item: '+' where it is right.
  static std::string lines(const std::string& task, const std::string& pattern) {
    std::string out;
    for (size_t i = 0; i < pattern.size(); ++i) {
      out += format("{\"id\":\"%s-%zu\",\"task\":\"%s\",\"right\":%s}\n", task.c_str(), i,
                    task.c_str(), pattern[i] == '+' ? "true" : "false");
    }
    return out;
  }
  std::string error_of(const std::string& text) {
    const auto read = read_outcomes(write("bad", text));
    return read.ok() ? "no error" : read.error().message;
  }
  std::vector<TaskComparison> compare(const std::string& first, const std::string& second) const {
    return compare_outcomes(read_outcomes(write("a", first)).value(),
                            read_outcomes(write("b", second)).value())
        .value();
  }

  TempFolder folder_;
};

TEST_F(CompareTest, ItemsArePairedById) {
  // The second run has them in another order, one more, and one fewer.
  const auto found = compare(lines("sort", "++-+-+"), R"({"id":"sort-9","task":"sort","right":true}
{"id":"sort-4","task":"sort","right":true}
{"id":"sort-3","task":"sort","right":false}
{"id":"sort-2","task":"sort","right":false}
{"id":"sort-1","task":"sort","right":true}
{"id":"sort-0","task":"sort","right":false}
)");
  ASSERT_EQ(found.size(), 1U);
  const TaskComparison& sort = found[0];
  ASSERT_TRUE(sort.pairs.has_value());
  EXPECT_EQ(sort.pairs->n, 5);
  EXPECT_EQ(sort.pairs->lost, 2);
  EXPECT_EQ(sort.pairs->won, 1);
  EXPECT_EQ(sort.unpaired, 2);
  EXPECT_EQ(sort.first.right, 3);
  EXPECT_EQ(sort.second.right, 2);
  EXPECT_NEAR(sort.difference, -0.2, 1e-12);
  EXPECT_EQ(sort.finding, Finding::none);
}

TEST_F(CompareTest, NoiseIsNoFindingAndMoreIs) {
  std::string many(200, '+');
  std::string fewer = many;
  std::string slightly = many;
  for (size_t i = 0; i < 20; ++i) fewer[7 * i] = '-';
  for (size_t i = 0; i < 2; ++i) slightly[i] = '-';
  EXPECT_EQ(compare(lines("t", many), lines("t", fewer))[0].finding, Finding::loss);
  EXPECT_EQ(compare(lines("t", fewer), lines("t", many))[0].finding, Finding::gain);
  const TaskComparison close = compare(lines("t", many), lines("t", slightly))[0];
  EXPECT_EQ(close.finding, Finding::none);
  // A hundredth less was found; what is ruled out is a loss of more than about three.
  EXPECT_FALSE(close.is_within(0.01));
  EXPECT_TRUE(close.is_within(0.04));
}

// 17 lost and 7 won of 4,000: the interval ends just below zero, and McNemar's p is 0.064.
TEST_F(CompareTest, WhatTheExactTestDoubtsIsNoFinding) {
  std::string first(4000, '+');
  std::string second = first;
  for (size_t i = 0; i < 17; ++i) second[i] = '-';
  for (size_t i = 17; i < 24; ++i) first[i] = '-';
  const TaskComparison found = compare(lines("t", first), lines("t", second))[0];
  EXPECT_LT(found.difference_ci.high, 0);
  EXPECT_NEAR(found.p, 0.0639, 1e-4);
  EXPECT_EQ(found.finding, Finding::none);
}

TEST_F(CompareTest, PairsSayMoreThanCounts) {
  // The same counts, item by item and as sums: 30 of 1000 wrong, or 6 of them more.
  std::string first(1000, '+');
  for (size_t i = 0; i < 30; ++i) first[i] = '-';
  std::string second = first;
  for (size_t i = 30; i < 38; ++i) second[i] = '-';
  const auto paired = compare(lines("t", first), lines("t", second));
  EXPECT_EQ(paired[0].finding, Finding::loss);
  const auto report = [](double accuracy) {
    return format(R"({"tasks":[{"task":"t","n":1000,"accuracy":%.3f}]})", accuracy);
  };
  const auto counted = compare(report(0.97), report(0.962));
  EXPECT_FALSE(counted[0].pairs.has_value());
  EXPECT_NEAR(counted[0].difference, paired[0].difference, 1e-12);
  EXPECT_EQ(counted[0].finding, Finding::none);
}

TEST_F(CompareTest, ReportsWithItemsPairAndSeveralTasksAreAddedUp) {
  const auto found = compare(R"({"model":"m","tasks":[
      {"task":"a","items":[{"id":"1","right":true},{"id":"2","right":true}]},
      {"task":"b","items":[{"id":"1","right":false}]},
      {"task":"c","n":5,"accuracy":1}]})",
                             lines("a", "++") + R"({"id":"1","task":"a","right":false}
{"id":"1","task":"b","right":true})");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].pairs->n, 1);  // "1" alone: the lines' own ids are a-0 and a-1
  EXPECT_EQ(found[0].pairs->lost, 1);
  EXPECT_EQ(found[1].pairs->won, 1);
  EXPECT_EQ(found[2].task, "all");
  EXPECT_EQ(found[2].pairs->n, 2);
  EXPECT_EQ(found[2].difference, 0);
}

TEST_F(CompareTest, WhatCannotBeReadIsNamed) {
  EXPECT_THAT(error_of(""), HasSubstr(folder_ / "bad"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected a report"));
  EXPECT_THAT(error_of(R"({"model":"m"})"), HasSubstr("\"tasks\""));
  EXPECT_THAT(error_of(R"({"tasks":[]})"), HasSubstr("no task"));
  EXPECT_THAT(error_of(R"({"tasks":[{"task":"a","n":0,"accuracy":1}]})"), HasSubstr("above 0"));
  EXPECT_THAT(error_of(R"({"tasks":[{"task":"a","n":4,"accuracy":1.5}]})"), HasSubstr("0 to 1"));
  EXPECT_THAT(error_of(lines("t", "+") + "{"), HasSubstr("line 2"));
  EXPECT_THAT(error_of(lines("t", "+") + lines("t", "+")), HasSubstr("twice"));
  EXPECT_THAT(error_of(lines("t", "+") + R"({"id":"x","task":"t","right":1})"),
              HasSubstr("true or false"));
  EXPECT_FALSE(read_outcomes("/nowhere/at/all").ok());
  const auto first = read_outcomes(write("a", lines("t", "+"))).value();
  const auto second = read_outcomes(write("b", lines("u", "+"))).value();
  EXPECT_THAT(compare_outcomes(first, second).error().message, HasSubstr("no task in common"));
}

}  // namespace
}  // namespace quire
