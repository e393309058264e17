// ServedText: what a simulated server knows of its model: a character for each token, made in
// memory. Immutable; runs share one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/served_model.h"

namespace quire::sim {

class ServedText {
 public:
  ServedText();
  ServedText(const ServedText&) = delete;
  ServedText& operator=(const ServedText&) = delete;

  const ServedModel& model() const { return model_; }
  std::string text_of(const std::vector<Token>& tokens) const;

 private:
  const Tokenizer tokenizer_;
  const std::unique_ptr<ChatFormat> chat_;
  const TokenTrie trie_;
  const ServedModel model_;
};

}  // namespace quire::sim
