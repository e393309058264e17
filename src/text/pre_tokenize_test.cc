#include "text/pre_tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <memory>
#include <string>

#include "base/rng.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  PieceReader reader(text);
  while (!reader.done()) out.emplace_back(reader.next());
  return out;
}

// The publisher's pattern, in ICU's own engine.
class IcuSplitter {
 public:
  IcuSplitter() {
    UErrorCode status = U_ZERO_ERROR;
    const std::string upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]";
    const std::string lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]";
    const std::string lead = "[^\\r\\n\\p{L}\\p{N}]?";
    const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    const std::string pattern = "[\\p{Han}]+|" + lead + upper + "*" + lower + "+" + contraction +
                                "|" + lead + upper + "+" + lower + "*" + contraction +
                                "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" +
                                "|\\s+(?!\\S)|\\s+";
    pattern_.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(pattern), 0, status));
    EXPECT_TRUE(U_SUCCESS(status)) << u_errorName(status);
  }

  std::vector<std::string> split(const icu::UnicodeString& text) const {
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(text, status));
    std::vector<std::string> out;
    while (matcher->find(status)) {
      std::string piece;
      matcher->group(status).toUTF8String(piece);
      out.push_back(piece);
    }
    EXPECT_TRUE(U_SUCCESS(status)) << u_errorName(status);
    return out;
  }

 private:
  std::unique_ptr<icu::RegexPattern> pattern_;
};

TEST(PieceReader, SplitsAsThePatternSays) {
  EXPECT_THAT(pieces("Hello, world!"), ElementsAre("Hello", ",", " world", "!"));
  EXPECT_THAT(pieces("I'll don't WE'RE  \n\n  x"),
              ElementsAre("I'll", " don't", " WE'RE", "  \n\n", " ", " x"));
  EXPECT_THAT(pieces("CamelCaseABCdef"), ElementsAre("Camel", "Case", "ABCdef"));
  EXPECT_THAT(pieces("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(pieces("  a \t"), ElementsAre(" ", " a", " \t"));
  EXPECT_THAT(pieces("x ...\n\ny"), ElementsAre("x", " ...\n\n", "y"));
  EXPECT_THAT(pieces("\xe6\xbc\xa2\xe5\xad\x97kana"),
              ElementsAre("\xe6\xbc\xa2\xe5\xad\x97", "kana"));
  EXPECT_THAT(pieces("it'\xc5\xbfx"), ElementsAre("it'\xc5\xbf", "x"));  // the long s folds to s
}

TEST(PieceReader, KeepsBytesThatAreNotUtf8) {
  EXPECT_THAT(pieces("a\xff\xfe."), ElementsAre("a", "\xff\xfe."));
  EXPECT_THAT(pieces("1\xffz"), ElementsAre("1", "\xffz"));  // one symbol may lead a word
  EXPECT_THAT(pieces("\xe4\xbd"), ElementsAre("\xe4\xbd"));
}

// Characters from every class that the pattern tells apart, and their odd relatives.
constexpr std::u32string_view kAlphabet =
    U"aAbBzZ sStTrReEvVmMlLdD''''    \t\n\r\r\n1234\u0966\u00b2\u2167\u00e9\u00c9\u01c5\u02b0\u05d0"
    U"\u0627\u0301\u093f\u20dd\u6f22\u5b57\u3007\u3005\u2e80\u3021\u30fc\uff71\u1100\uac00"
    U".,!_-/\\\"\u200d\u00a0\u3000\u0085\u2028\x0b\x0c\x1c\x1f\ufeff\u00df\u017f\u212a\u0149"
    U"\U0001f642\U0001f3fd\U0001d49c\U00020000";

TEST(PieceReader, EqualsIcusRegexOnRandomText) {
  const IcuSplitter icu_splitter;
  Rng rng(20260101);
  for (int trial = 0; trial < 4000; ++trial) {
    icu::UnicodeString text;
    const uint64_t n = 1 + rng.next_below(40);
    for (uint64_t i = 0; i < n; ++i) {
      const bool anything = trial % 4 == 0;
      const auto code = static_cast<UChar32>(
          anything ? rng.next_below(0x30000) : kAlphabet[rng.next_below(kAlphabet.size())]);
      if (code < 0xd800 || code > 0xdfff) text.append(code);
    }
    std::string utf8;
    text.toUTF8String(utf8);
    ASSERT_EQ(pieces(utf8), icu_splitter.split(text)) << utf8;
  }
}

TEST(PieceReader, AsciiEqualsIcusRegexExhaustively) {
  const IcuSplitter icu_splitter;
  for (char16_t a = 0; a < 128; ++a) {
    for (char16_t b = 0; b < 128; ++b) {
      const char16_t text[] = {u'x', a, b, u'y', 0};
      std::string utf8;
      icu::UnicodeString(text, 4).toUTF8String(utf8);
      ASSERT_EQ(pieces(utf8), icu_splitter.split(icu::UnicodeString(text, 4)))
          << int{a} << ' ' << int{b};
    }
  }
}

std::vector<size_t> slice_sizes(std::string_view text) {
  std::vector<size_t> out;
  std::string joined;
  for (const std::string_view slice : slice_text(text)) {
    out.push_back(slice.size());
    joined += slice;
  }
  EXPECT_EQ(joined, text);
  return out;
}

TEST(SliceText, CutsRunsAtTheirBound) {
  EXPECT_THAT(slice_sizes(""), ElementsAre());
  EXPECT_THAT(slice_sizes(std::string(25'000, 'a')), ElementsAre(25'000));
  EXPECT_THAT(slice_sizes(std::string(25'001, 'a')), ElementsAre(25'000, 1));
  EXPECT_THAT(slice_sizes(std::string(50'000, ' ')), ElementsAre(25'000, 25'000));
  EXPECT_THAT(slice_sizes(std::string(50'001, ' ')), ElementsAre(25'000, 25'000, 1));
  // Runs on both sides of the bound; a change of class begins a new one.
  EXPECT_THAT(slice_sizes(std::string(25'000, 'a') + " " + std::string(25'000, 'a')),
              ElementsAre(50'001));
  EXPECT_THAT(slice_sizes(" " + std::string(25'001, 'a') + " b"), ElementsAre(25'001, 3));
  // A separator control is a blank to the slices, though not to the pattern.
  EXPECT_THAT(slice_sizes(std::string(24'999, 'a') + "\x1c" + std::string(24'999, 'a')),
              ElementsAre(49'999));
}

TEST(SliceText, CountsCharactersNotBytes) {
  std::string text;
  for (int i = 0; i < 25'001; ++i) text += "\xe6\xbc\xa2";
  EXPECT_THAT(slice_sizes(text), ElementsAre(75'000, 3));
}

TEST(SliceText, CutsBlocksAtTheirBound) {
  std::string words;
  while (words.size() < 400'000) words += "word ";
  EXPECT_THAT(slice_sizes(words), ElementsAre(400'000));
  EXPECT_THAT(slice_sizes(words + "x"), ElementsAre(400'000, 1));
  EXPECT_THAT(slice_sizes(words.substr(0, 399'999)), ElementsAre(399'999));
  // A block begins a new run: 5 letters before the border do not count after it.
  const std::string tail(25'000, 'y');
  EXPECT_THAT(slice_sizes(words.substr(0, 399'995) + "zzzzz" + tail), ElementsAre(400'000, 25'000));
  EXPECT_THAT(slice_sizes(words.substr(0, 399'995) + "zzzzz" + tail + "y"),
              ElementsAre(400'000, 25'000, 1));
}

}  // namespace
}  // namespace quire
