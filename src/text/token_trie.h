// TokenTrie: a vocabulary as a tree of bytes, for finding the tokens that a byte grammar allows.
//
// Built once for a tokenizer. Ordinary tokens only: special tokens are no bytes to a grammar.
// Also knows which tokens fit inside a JSON string, because there nearly all of them do and a walk
// of the tree would cost milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace quire {

// A set of token ids, one bit each.
using TokenMask = std::span<uint64_t>;

constexpr size_t token_mask_words(int32_t vocab_size) {
  return (static_cast<size_t>(vocab_size) + 63) / 64;
}
inline void set_token(TokenMask mask, Token token) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (static_cast<size_t>(token) % 64);
}

class TokenTrie {
 public:
  // One byte of one or more tokens. Nodes lie in depth-first order, children by byte.
  struct Node {
    uint8_t byte;
    uint16_t depth;       // bytes before this one
    Token token;          // that ends here, or -1
    int32_t subtree_end;  // index past the last descendant
  };
  // Tokens that close a JSON string: what they say from the closing quote on, and which they are.
  struct StringExit {
    std::string rest;  // begins with the quote
    std::vector<Token> tokens;
  };

  // `tokenizer` outlives this.
  explicit TokenTrie(const Tokenizer& tokenizer);

  int32_t vocab_size() const { return tokenizer_.vocab_size(); }
  bool is_ordinary(Token token) const {
    return token >= 0 && token < tokenizer_.vocabulary().size();
  }
  std::string_view bytes(Token token) const { return tokenizer_.token_bytes(token); }
  std::span<const Node> nodes() const { return nodes_; }

  // Every ordinary token.
  std::span<const uint64_t> ordinary() const { return ordinary_; }
  // The tokens that, from between two characters of a JSON string, stay in it.
  std::span<const uint64_t> in_string() const { return in_string_; }
  std::span<const StringExit> string_exits() const { return string_exits_; }

 private:
  void build_nodes(const Vocabulary& vocabulary);
  void build_string_sets(const Vocabulary& vocabulary);

  const Tokenizer& tokenizer_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> ordinary_;   // [token_mask_words(vocab_size)]
  std::vector<uint64_t> in_string_;  // [token_mask_words(vocab_size)]
  std::vector<StringExit> string_exits_;
};

}  // namespace quire
