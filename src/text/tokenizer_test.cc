#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "base/rng.h"
#include "text/detokenizer.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using testing::ranks_file;
using testing::small_tokenizer;

const std::string kShared = std::string(QUIRE_SOURCE_DIR) + "/../shared/data";

TEST(Tokenizer, EncodesByPieces) {
  const Tokenizer tokenizer = small_tokenizer();
  // "hello" and " world" are ranks 259 and 264; the pieces do not join.
  EXPECT_EQ(tokenizer.encode("hello world"), (std::vector<Token>{259, 264}));
  EXPECT_EQ(tokenizer.encode(""), std::vector<Token>{});
  EXPECT_EQ(tokenizer.encode("hellos"), (std::vector<Token>{259, 's'}));
  EXPECT_EQ(tokenizer.encode("hell"), (std::vector<Token>{256, 257}));
}

TEST(Tokenizer, NeverRecognisesSpecialTokensInText) {
  const Tokenizer tokenizer = small_tokenizer();
  const std::string text = "<|im_end|></think><|reserved_token_301|>[EOS]";
  for (const Token token : tokenizer.encode(text)) EXPECT_FALSE(tokenizer.is_special(token));
  EXPECT_EQ(tokenizer.bytes(tokenizer.encode(text)), text);
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  const Tokenizer tokenizer = small_tokenizer();
  const Token first = tokenizer.vocabulary().size();
  EXPECT_EQ(tokenizer.vocab_size(), first + 256);
  EXPECT_EQ(tokenizer.special("<|im_end|>"), first + 2);
  EXPECT_EQ(tokenizer.token_bytes(first + 2), "<|im_end|>");
  EXPECT_TRUE(tokenizer.is_hidden(first + 2));
  EXPECT_FALSE(tokenizer.is_hidden(tokenizer.special("</think>").value()));
  EXPECT_FALSE(tokenizer.is_hidden('a'));
  const std::string reserved = format("<|reserved_token_%d|>", first + 5);
  EXPECT_EQ(tokenizer.special(reserved), first + 5);
  EXPECT_EQ(tokenizer.special("hello"), std::nullopt);
  EXPECT_EQ(tokenizer.special("<|nothing|>"), std::nullopt);
}

TEST(Tokenizer, GivesBackAnyBytes) {
  const Tokenizer tokenizer = small_tokenizer();
  Rng rng(5);
  for (int trial = 0; trial < 500; ++trial) {
    std::string text;
    for (uint64_t n = rng.next_below(60); n > 0; --n) {
      text += static_cast<char>(rng.next_below(trial % 2 == 0 ? 256 : 128));
    }
    ASSERT_EQ(tokenizer.bytes(tokenizer.encode(text)), text);
  }
}

std::string refusal(const std::string& config) {
  const auto parsed = Tokenizer::parse(ranks_file({}), config);
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(Tokenizer, RefusesBadConfigurations) {
  EXPECT_EQ(refusal("{}"), "accepted");
  EXPECT_THAT(refusal("[]"), HasSubstr("object"));
  EXPECT_THAT(refusal("{"), HasSubstr("JSON"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": []})"), HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"x": {"content": "a"}}})"), HasSubstr("id"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"255": {"content": "a"}}})"),
              HasSubstr("from 256 to 511"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"512": {"content": "a"}}})"),
              HasSubstr("from 256 to 511"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"256": {"content": ""}}})"), HasSubstr("bytes"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"256": {"content": 1}}})"), HasSubstr("256"));
  EXPECT_THAT(refusal(R"({"added_tokens_decoder": {"256": {"content": "a", "special": 1}}})"),
              HasSubstr("special"));
  EXPECT_THAT(
      refusal(R"({"added_tokens_decoder": {"256": {"content": "a"}, "257": {"content": "a"}}})"),
      HasSubstr("another"));
  EXPECT_THAT(
      refusal(R"({"added_tokens_decoder": {"256": {"content": "a"}, "0256": {"content": "b"}}})"),
      HasSubstr("twice"));
}

TEST(Tokenizer, NamesTheFileThatIsMissing) {
  const auto loaded = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::not_found);
  EXPECT_THAT(loaded.error().message, HasSubstr("/nonexistent/tiktoken.model"));
}

TEST(Detokenizer, HoldsCharactersAndHidesControlTokens) {
  const Tokenizer tokenizer = small_tokenizer();
  const Token first_half = tokenizer.vocabulary().find("\xe4\xbd").value();
  const Token im_end = tokenizer.special("<|im_end|>").value();
  const Token think = tokenizer.special("<think>").value();
  Detokenizer hiding(tokenizer, SpecialText::skip_hidden);
  EXPECT_EQ(hiding.push(first_half), "");
  EXPECT_EQ(hiding.push(0xa0), "\xe4\xbd\xa0");
  EXPECT_EQ(hiding.push(think), "<think>");
  EXPECT_EQ(hiding.push(first_half), "");
  EXPECT_EQ(hiding.push(im_end), "\xef\xbf\xbd");
  EXPECT_EQ(hiding.push(first_half), "");
  EXPECT_EQ(hiding.finish(), "\xef\xbf\xbd");
  Detokenizer showing(tokenizer, SpecialText::show_all);
  EXPECT_EQ(showing.push(im_end), "<|im_end|>");
}

class KimiTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string dir = kShared + "/hf/moonshotai--Kimi-K2.6";
    if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no Kimi tokenizer in ../shared/data";
    auto loaded = Tokenizer::load(dir);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_.emplace(std::move(loaded).value());
  }
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(KimiTokenizer, ReproducesThePublishedIds) {
  std::ifstream lines(kShared + "/kimi/tokens.jsonl");
  std::string line;
  int n = 0;
  while (std::getline(lines, line)) {
    const Json value = parse_json(line).value();
    const auto text = value["text"].get<std::string>();
    const auto ids = value["ids"].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer_->encode(text), ids) << text;
    EXPECT_EQ(tokenizer_->bytes(ids), text);
    ++n;
  }
  EXPECT_GE(n, 243);
}

TEST_F(KimiTokenizer, KnowsItsSizes) {
  EXPECT_EQ(tokenizer_->vocab_size(), 163'840);
  EXPECT_EQ(tokenizer_->special("<|im_end|>"), 163'586);
  EXPECT_EQ(tokenizer_->special("<|reserved_token_163589|>"), 163'589);
  EXPECT_FALSE(tokenizer_->is_hidden(163'607));
}

// The slices of the publisher's encode show in the ids: the same text in one piece has others.
TEST_F(KimiTokenizer, CutsLongRunsAsThePublisherDoes) {
  const std::string run(25'000, ' ');
  const std::vector<Token> once = tokenizer_->encode(run);
  std::vector<Token> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  EXPECT_EQ(tokenizer_->encode(run + run), twice);
  std::vector<Token> with_word = once;
  const std::vector<Token> word = tokenizer_->encode(" word");
  with_word.insert(with_word.end(), word.begin(), word.end());
  EXPECT_EQ(tokenizer_->encode(run + " word"), with_word);
}

}  // namespace
}  // namespace quire
