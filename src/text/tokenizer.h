// Tokenizer: plain text to token ids and back, exact for Kimi's `tiktoken.model`.
//
// Special tokens are never recognised in text: "<|im_end|>" in a user's message is ten plain
// characters. Who wants a special token asks for it by name (special()), as text/chat.h does for
// markup. Thread-safe once loaded; every call keeps its working memory to itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/vocabulary.h"

namespace quire {

class Tokenizer {
 public:
  // Ids after the ranks that are special tokens. Fixed by the publisher's tokenizer.
  static constexpr int32_t kSpecials = 256;

  // Reads `tiktoken.model` and `tokenizer_config.json` of a model folder; nothing else of it.
  // Errors: not_found, invalid_argument; the message names the file.
  static Result<Tokenizer> load(const std::string& model_dir);
  // The same from the files' contents.
  static Result<Tokenizer> parse(std::string_view ranks, std::string_view config_json);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ranks and specials together: every id is below it.
  int32_t vocab_size() const { return vocabulary_.size() + kSpecials; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  // The ids of plain text. Bytes that are not UTF-8 are kept: the ids' bytes are always the text.
  std::vector<Token> encode(std::string_view text) const;

  // The id of the special token written so, such as "<|im_end|>" or "<|reserved_token_163589|>".
  std::optional<Token> special(std::string_view text) const;

  // What an id stands for: bytes, not always UTF-8 by themselves. A special token's are its name.
  // The id must be in [0, vocab_size()).
  std::string_view token_bytes(Token token) const;
  // All bytes of `tokens`, end to end, special tokens by name.
  std::string bytes(std::span<const Token> tokens) const;

  bool is_special(Token token) const { return token >= vocabulary_.size(); }
  // Whether an answer shown to a user leaves the token out: control tokens, but not the marks of
  // thoughts and tool calls ("special": false in tokenizer_config.json).
  bool is_hidden(Token token) const;

 private:
  struct Special {
    std::string text;
    bool is_hidden;
  };

  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Status read_specials(std::string_view config_json);

  Vocabulary vocabulary_;
  std::vector<Special> specials_;  // [kSpecials], id - vocabulary_.size()
  std::unordered_map<std::string, Token> special_ids_;
};

}  // namespace quire
