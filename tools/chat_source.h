// Who answers in `quire chat`: a server somewhere, or an engine in this process.
//
// Both take messages as OpenAI's API has them and tell the answer as it comes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace quire {

// A piece of an answer.
struct ChatPiece {
  std::string reasoning;
  std::string content;
};

// Says whether to go on: false ends the answer early.
using ChatListener = std::function<bool(const ChatPiece&)>;

struct ChatOptions {
  Json fields = Json::object();  // of every request: temperature, max_tokens, ...
  std::string model;             // empty: the server's first
  std::string api_key;
};

class ChatSource {
 public:
  virtual ~ChatSource() = default;
  // What it is, for the greeting.
  virtual std::string description() const = 0;
  // Errors: what the server or the engine said.
  virtual Status answer(const Json& messages, const ChatListener& listener) = 0;
};

// Errors: invalid_argument (not a URL), unavailable (nobody there).
Result<std::unique_ptr<ChatSource>> connect_chat(const std::string& url, ChatOptions options);
// Errors: as load_text, load_model and make_model_engine.
Result<std::unique_ptr<ChatSource>> load_chat(const std::string& model_path, ChatOptions options);

}  // namespace quire
