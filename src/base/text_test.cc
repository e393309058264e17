#include "base/text.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Text, FormatsLikePrintf) { EXPECT_EQ(format("%s %d", "page", 7), "page 7"); }

TEST(Text, ParsesWholeIntegersOnly) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("12x"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("9223372036854775808"), std::nullopt);
}

TEST(Text, FindsTheFirstInvalidUtf8Byte) {
  EXPECT_EQ(first_invalid_utf8("caf\xc3\xa9 \xf0\x9f\x99\x82"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2U);
  EXPECT_EQ(first_invalid_utf8("a\xc0\xaf"), 1U);         // overlong '/'
  EXPECT_EQ(first_invalid_utf8("\xed\xa0\x80"), 0U);      // surrogate U+D800
  EXPECT_EQ(first_invalid_utf8("\xf4\x90\x80\x80"), 0U);  // past U+10FFFF
  EXPECT_EQ(first_invalid_utf8("x\xe2\x82"), 1U);         // cut short
}

TEST(Text, ExcerptsAreShortAndPrintable) {
  EXPECT_EQ(excerpt("a\r\n\x1b[31m"), "a\\x0d\\x0a\\x1b[31m");
  const std::string cut = excerpt(std::string(1000, 'a'), 16);
  EXPECT_EQ(cut, std::string(16, 'a') + "...");
}

TEST(Text, SizesAreReadable) {
  EXPECT_EQ(human_bytes(37), "37 B");
  EXPECT_EQ(human_bytes(37'376), "37.4 kB");
  EXPECT_EQ(human_bytes(1'500'000'000), "1.50 GB");
}

}  // namespace
}  // namespace quire
