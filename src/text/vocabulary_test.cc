#include "text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_tokenizer.h"

namespace quire {
namespace {

using testing::base64;
using ::testing::HasSubstr;
using testing::ranks_file;

TEST(Vocabulary, FindsWhatItHolds) {
  const auto parsed = Vocabulary::parse(ranks_file({"ab", "abc", std::string("\0x", 2)}));
  ASSERT_TRUE(parsed.ok());
  const Vocabulary& v = parsed.value();
  EXPECT_EQ(v.size(), 259);
  EXPECT_EQ(v.find("a"), 'a');
  EXPECT_EQ(v.find("ab"), 256);
  EXPECT_EQ(v.find("abc"), 257);
  EXPECT_EQ(v.find(std::string_view("\0x", 2)), 258);
  EXPECT_EQ(v.find("abcd"), std::nullopt);
  EXPECT_EQ(v.find("bc"), std::nullopt);
  EXPECT_EQ(v.find(""), std::nullopt);
  EXPECT_EQ(v.bytes(257), "abc");
  EXPECT_EQ(v.token_bytes_max(), 3U);
}

TEST(Vocabulary, HoldsThousands) {
  std::vector<std::string> merges;
  for (int i = 0; i < 5000; ++i) merges.push_back(format("token-%d", i));
  const auto parsed = Vocabulary::parse(ranks_file(merges));
  ASSERT_TRUE(parsed.ok());
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(parsed.value().find(merges[static_cast<size_t>(i)]), 256 + i);
  }
}

// The message that refuses `text`.
std::string refusal(const std::string& text) {
  const auto parsed = Vocabulary::parse(text);
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(Vocabulary, RefusesWhatIsNotWellFormed) {
  const std::string good = ranks_file({});
  EXPECT_THAT(refusal(""), HasSubstr("no rank for byte 0"));
  EXPECT_THAT(refusal(good + "no-space\n"), HasSubstr("line 257"));
  EXPECT_THAT(refusal(good + "YWI 256\n"), HasSubstr("line 257"));   // not padded
  EXPECT_THAT(refusal(good + "YW!= 256\n"), HasSubstr("line 257"));  // not base64
  EXPECT_THAT(refusal(good + "YWJ= 256\n"), HasSubstr("line 257"));  // loose bits
  EXPECT_THAT(refusal(good + " 256\n"), HasSubstr("line 257"));      // no bytes
  EXPECT_THAT(refusal(good + "YWI= 257\n"), HasSubstr("expected rank 256"));
  EXPECT_THAT(refusal(good + "YWI= x\n"), HasSubstr("expected rank 256"));
  EXPECT_THAT(refusal(good + "YWI= 256 \n"), HasSubstr("expected rank 256"));
  EXPECT_THAT(refusal(good + "YQ== 256\n"), HasSubstr("earlier rank"));
  EXPECT_THAT(refusal(good + "\n"), HasSubstr("line 257"));
  EXPECT_THAT(refusal(good + base64(std::string(1025, 'x')) + " 256\n"), HasSubstr("1025 bytes"));
  EXPECT_EQ(refusal(good + base64(std::string(1024, 'x')) + " 256\n"), "accepted");
  EXPECT_EQ(refusal(good.substr(0, good.size() - 1)), "accepted");  // no newline at the end
}

}  // namespace
}  // namespace quire
