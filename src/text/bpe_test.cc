#include "text/bpe.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

// The definition, pair by pair: joins the leftmost pair of lowest rank until there is none.
std::vector<Token> merge_slowly(const Vocabulary& vocabulary, const std::string& piece) {
  if (const auto whole = vocabulary.find(piece)) return {*whole};
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  while (true) {
    std::optional<Token> lowest;
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = vocabulary.find(parts[i] + parts[i + 1]);
      if (!rank || (lowest && *lowest <= *rank)) continue;
      lowest = rank;
      where = i;
    }
    if (!lowest) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
  std::vector<Token> out;
  for (const std::string& part : parts) out.push_back(vocabulary.find(part).value());
  return out;
}

TEST(Bpe, TakesAWholePieceBeforeItsMerges) {
  // "abc" cannot be reached by merges: no pair of its bytes is a token.
  const auto vocabulary = Vocabulary::parse(testing::ranks_file({"abc"}));
  Bpe bpe(vocabulary.value());
  std::vector<Token> out;
  bpe.append("abc", &out);
  bpe.append("abcd", &out);
  EXPECT_EQ(out, (std::vector<Token>{256, 'a', 'b', 'c', 'd'}));
}

TEST(Bpe, EqualsTheDefinitionOnRandomVocabularies) {
  Rng rng(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> merges;
    const auto word = [&](uint64_t longest) {
      std::string out;
      const uint64_t n = 2 + rng.next_below(longest - 1);
      for (uint64_t i = 0; i < n; ++i) out += static_cast<char>('a' + rng.next_below(3));
      return out;
    };
    for (int i = 0; i < 30; ++i) {
      const std::string merge = word(5);
      if (std::find(merges.begin(), merges.end(), merge) == merges.end()) merges.push_back(merge);
    }
    const auto vocabulary = Vocabulary::parse(testing::ranks_file(merges));
    ASSERT_TRUE(vocabulary.ok());
    Bpe bpe(vocabulary.value());
    for (int i = 0; i < 20; ++i) {
      const std::string piece = word(60);
      std::vector<Token> out;
      bpe.append(piece, &out);
      ASSERT_EQ(out, merge_slowly(vocabulary.value(), piece)) << piece;
    }
  }
}

// Longer than any slice: a quadratic merge would take minutes.
TEST(Bpe, MergesAVeryLongPiece) {
  const auto vocabulary = Vocabulary::parse(testing::ranks_file({"aa", "aaaa", "aaaaaaaa"}));
  Bpe bpe(vocabulary.value());
  std::vector<Token> out;
  bpe.append(std::string(200'003, 'a'), &out);
  ASSERT_EQ(out.size(), 25'002U);  // 25,000 of eight, one of two, one of one
  EXPECT_EQ(out[24'999], 258);
  EXPECT_EQ(out[25'000], 256);
  EXPECT_EQ(out[25'001], 'a');
}

}  // namespace
}  // namespace quire
