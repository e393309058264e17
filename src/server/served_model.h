// ServedModel: what the server knows of the model it serves. Set once the model is loaded, then
// read by many threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "text/chat.h"
#include "text/token_trie.h"
#include "text/tokenizer.h"

namespace quire {

struct ServedModel {
  // Names a request may use; the first is what is listed first.
  std::vector<std::string> names;
  std::string path;            // as given at start, for model_info
  const Tokenizer& tokenizer;  // these three outlive this
  const ChatFormat& chat;
  const TokenTrie& trie;
  int32_t vocab_size = 0;        // of the model: ids at or above it have no embedding
  int32_t context_tokens = 0;    // longest sequence: the model's, or what the pool can hold
  std::vector<Token> turn_ends;  // end an answer, unless ignore_eos
  int64_t created_s = 0;         // Unix time of the start
};

}  // namespace quire
