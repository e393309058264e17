#include "sim/served_text.h"

#include <string_view>

#include "base/check.h"
#include "base/text.h"

namespace quire::sim {

namespace {

constexpr int kBytes = 256;
constexpr int kFirst = '0';  // token 0: what follows it can be read

// A file of ranks, which are single bytes in base64: two characters and two signs of their end.
Tokenizer make_tokenizer() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string ranks;
  for (int i = 0; i < kBytes; ++i) {
    const auto byte = static_cast<size_t>((i + kFirst) % kBytes);
    ranks += kDigits[byte >> 2];
    ranks += kDigits[(byte & 3) << 4];
    ranks += format("== %d\n", i);
  }
  Result<Tokenizer> tokenizer = Tokenizer::parse(ranks, "{}");
  CHECK(tokenizer.ok());
  return std::move(tokenizer).value();
}

}  // namespace

ServedText::ServedText()
    : tokenizer_(make_tokenizer()),
      chat_(make_chat_format("kimi-k2.6").value()),
      trie_(tokenizer_),
      model_{.names = {"symbols"},
             .path = "symbols",
             .tokenizer = tokenizer_,
             .chat = *chat_,
             .trie = trie_,
             .vocab_size = tokenizer_.vocab_size()} {}

std::string ServedText::text_of(const std::vector<Token>& tokens) const {
  std::string text;
  for (const Token token : tokens) text += tokenizer_.token_bytes(token);
  return text;
}

}  // namespace quire::sim
