#include "text/utf8_assembler.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "base/text.h"

namespace quire {
namespace {

constexpr char kBad[] = "\xef\xbf\xbd";

std::string assemble(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string out;
  assembler.push(bytes, &out);
  assembler.finish(&out);
  return out;
}

TEST(Utf8Assembler, HoldsAnIncompleteCharacter) {
  Utf8Assembler assembler;
  std::string out;
  assembler.push("a\xf0\x9f", &out);
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(assembler.is_holding());
  assembler.push("\x99", &out);
  EXPECT_EQ(out, "a");
  assembler.push("\x82z", &out);
  EXPECT_EQ(out, "a\xf0\x9f\x99\x82z");
  EXPECT_FALSE(assembler.is_holding());
}

TEST(Utf8Assembler, ReplacesMaximalParts) {
  const std::string bad = kBad;
  EXPECT_EQ(assemble("\xff"), bad);
  EXPECT_EQ(assemble("\x80\x80"), bad + bad);
  EXPECT_EQ(assemble("\xe4\xbd"), bad);         // cut short by the end
  EXPECT_EQ(assemble("\xe4\xbd("), bad + "(");  // and by a character
  EXPECT_EQ(assemble("\xe4\xe4\xbd\xa0"), bad + "\xe4\xbd\xa0");
  EXPECT_EQ(assemble("\xc0\xaf"), bad + bad);  // overlong
  EXPECT_EQ(assemble("\xe0\x80\xaf"), bad + bad + bad);
  EXPECT_EQ(assemble("\xed\xa0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(assemble("\xf4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(assemble("\xf1\x80\x80\xe1\x80\xc2"
                     "b"),
            bad + bad + bad + "b");  // Unicode table 3-8
}

TEST(Utf8Assembler, GivesTheSameForEveryCut) {
  Rng rng(3);
  constexpr std::string_view kBytes = "a\xe4\xbd\xa0\xf0\x9f\x99\x82\xc3\xa9\xff\x80\xed\xf4\xc0";
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes;
    for (uint64_t n = rng.next_below(20); n > 0; --n)
      bytes += kBytes[rng.next_below(kBytes.size())];
    const std::string whole = assemble(bytes);
    ASSERT_FALSE(first_invalid_utf8(whole).has_value());
    Utf8Assembler assembler;
    std::string out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + rng.next_below(4);
      assembler.push(std::string_view(bytes).substr(at, n), &out);
      ASSERT_FALSE(first_invalid_utf8(out).has_value());
      at += n;
    }
    assembler.finish(&out);
    ASSERT_EQ(out, whole);
    if (!first_invalid_utf8(bytes)) {
      ASSERT_EQ(whole, bytes);
    }
  }
}

}  // namespace
}  // namespace quire
