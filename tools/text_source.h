// The text side of a model folder for a tool: its tokenizer and the format of its chats.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/chat.h"
#include "text/token_trie.h"
#include "text/tokenizer.h"

namespace quire {

// On the heap and never moved: the trie looks at the tokenizer.
struct TextSource {
  TextSource(Tokenizer the_tokenizer, std::unique_ptr<ChatFormat> format)
      : tokenizer(std::move(the_tokenizer)), chat(std::move(format)), trie(tokenizer) {}
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  Tokenizer tokenizer;
  std::unique_ptr<ChatFormat> chat;
  TokenTrie trie;
};

// `family` as make_chat_format has it, or "auto": K2.6's, whose thoughts and tools K2.5 and the
// models made for this project share. Errors: as Tokenizer::load and make_chat_format.
Result<std::unique_ptr<TextSource>> load_text(const std::string& dir, std::string_view family);

}  // namespace quire
