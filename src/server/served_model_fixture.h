// For tests of this folder: a ServedModel over the committed tokenizer of models/kimi-nano.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/served_model.h"

namespace quire {

struct ServedModelFixture {
  explicit ServedModelFixture(Tokenizer loaded)
      : tokenizer(std::move(loaded)),
        chat(make_chat_format("kimi-k2.6").value()),
        trie(tokenizer),
        model{.names = {"nano", "org/nano"},
              .path = "models/kimi-nano",
              .tokenizer = tokenizer,
              .chat = *chat,
              .trie = trie,
              .vocab_size = tokenizer.vocab_size(),
              .context_tokens = 512,
              .turn_ends = chat->stop_tokens(tokenizer),
              .created_s = 1'700'000'000} {}
  ServedModelFixture(const ServedModelFixture&) = delete;
  ServedModelFixture& operator=(const ServedModelFixture&) = delete;

  static std::unique_ptr<ServedModelFixture> load() {
    Result<Tokenizer> tokenizer =
        Tokenizer::load(std::string(QUIRE_SOURCE_DIR) + "/models/kimi-nano");
    CHECK(tokenizer.ok());
    return std::make_unique<ServedModelFixture>(std::move(tokenizer).value());
  }

  Token special(std::string_view name) const { return tokenizer.special(name).value(); }

  Tokenizer tokenizer;
  std::unique_ptr<ChatFormat> chat;
  TokenTrie trie;
  ServedModel model;
};

}  // namespace quire
