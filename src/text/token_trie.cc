#include "text/token_trie.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "text/json_machine.h"

namespace quire {

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  ordinary_.resize(token_mask_words(tokenizer.vocab_size()));
  in_string_.resize(token_mask_words(tokenizer.vocab_size()));
  for (Token token = 0; token < tokenizer.vocabulary().size(); ++token) {
    set_token(ordinary_, token);
  }
  build_nodes(tokenizer.vocabulary());
  build_string_sets(tokenizer.vocabulary());
}

void TokenTrie::build_nodes(const Vocabulary& vocabulary) {
  std::vector<Token> order(static_cast<size_t>(vocabulary.size()));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](Token a, Token b) { return vocabulary.bytes(a) < vocabulary.bytes(b); });
  std::vector<size_t> open;  // nodes on the path to the last one
  const auto close_to = [&](size_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].subtree_end = static_cast<int32_t>(nodes_.size());
      open.pop_back();
    }
  };
  std::string_view last;
  for (const Token token : order) {
    const std::string_view bytes = vocabulary.bytes(token);
    const auto mismatch = std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end());
    const auto shared = static_cast<size_t>(mismatch.first - last.begin());
    close_to(shared);
    for (size_t i = shared; i < bytes.size(); ++i) {
      open.push_back(nodes_.size());
      nodes_.push_back({static_cast<uint8_t>(bytes[i]), static_cast<uint16_t>(i),
                        i + 1 == bytes.size() ? token : -1, 0});
    }
    last = bytes;
  }
  close_to(0);
}

void TokenTrie::build_string_sets(const Vocabulary& vocabulary) {
  std::map<std::string, std::vector<Token>, std::less<>> exits;
  for (Token token = 0; token < vocabulary.size(); ++token) {
    const std::string_view bytes = vocabulary.bytes(token);
    JsonStringState state;
    size_t at = 0;
    while (at < bytes.size() && !(state.is_plain() && bytes[at] == '"') &&
           state.push(static_cast<uint8_t>(bytes[at]))) {
      ++at;
    }
    if (at == bytes.size()) {
      set_token(in_string_, token);
    } else if (state.is_plain() && bytes[at] == '"') {
      exits[std::string(bytes.substr(at))].push_back(token);
    }
  }
  for (auto& [rest, tokens] : exits) string_exits_.push_back({rest, std::move(tokens)});
}

}  // namespace quire
