#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace quire {
namespace {

TEST(StopMatcher, StopsBeforeTheStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("one E"), "one ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("Egal E"), "ENEgal ");
  EXPECT_EQ(matcher.push("ND two"), "");
  EXPECT_TRUE(matcher.is_stopped());
  EXPECT_EQ(matcher.matched(), 0);
  EXPECT_EQ(matcher.push("three"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackWhatItHeld) {
  StopMatcher matcher({"\n\nUser:", "###"});
  EXPECT_EQ(matcher.push("text\n\nUse"), "text");
  EXPECT_EQ(matcher.finish(), "\n\nUse");
  EXPECT_FALSE(matcher.is_stopped());
}

TEST(StopMatcher, HoldsNothingWithoutStops) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("anything"), "anything");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TakesTheFirstEndAndThenTheLongest) {
  StopMatcher first_end({"abcd", "bc"});
  EXPECT_EQ(first_end.push("xabcd"), "xa");
  EXPECT_EQ(first_end.matched(), 1);
  StopMatcher longest({"bc", "abc"});
  EXPECT_EQ(longest.push("xabc"), "x");
  EXPECT_EQ(longest.matched(), 1);
}

// The definition: the first end of any stop string in the text, the longest of those there.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcher, EqualsTheDefinitionAtEveryCut) {
  Rng rng(11);
  const auto word = [&](uint64_t least, uint64_t most) {
    std::string out;
    for (uint64_t n = least + rng.next_below(most - least + 1); n > 0; --n) {
      out += static_cast<char>('a' + rng.next_below(2));
    }
    return out;
  };
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<std::string> stops;
    for (uint64_t n = rng.next_below(4); n > 0; --n) stops.push_back(word(2, 6));
    const std::string text = word(0, 30);
    StopMatcher matcher(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + rng.next_below(5);
      out += matcher.push(std::string_view(text).substr(at, n));
      at += n;
    }
    out += matcher.finish();
    ASSERT_EQ(out, before_stop(text, stops)) << text;
  }
}

}  // namespace
}  // namespace quire
