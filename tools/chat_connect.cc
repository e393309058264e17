// A chat with a server: one HTTP request an answer, its events read as they come.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "tools/chat_source.h"
#include "tools/http_exchange.h"

namespace quire {

namespace {

std::string text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

class RemoteChat final : public ChatSource {
 public:
  RemoteChat(ServerAddress address, ChatOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}

  // Asks for the server's models when none was named.
  Status choose_model() {
    if (!options_.model.empty()) return {};
    HttpExchange exchange = TRY(ask("GET", "/v1/models", ""));
    const Json models = TRY(parse_json(exchange.rest()));
    if (models.is_object() && models.contains("data") && models["data"].is_array() &&
        !models["data"].empty() && models["data"][0].is_object()) {
      options_.model = text_member(models["data"][0], "id");
    }
    if (options_.model.empty()) return unavailable("the server names no model");
    return {};
  }

  std::string description() const override {
    return options_.model + " at " + address_.host + " port " + address_.port;
  }

  Status answer(const Json& messages, const ChatListener& listener) override {
    Json body = options_.fields;
    body["model"] = options_.model;
    body["messages"] = messages;
    body["stream"] = true;
    HttpExchange exchange = TRY(ask("POST", "/v1/chat/completions", dump_json(body)));
    constexpr std::string_view kData = "data: ";
    while (true) {
      const std::optional<std::string> line = TRY(exchange.line());
      if (!line) return unavailable("the answer broke off");
      if (line->compare(0, kData.size(), kData) != 0) continue;
      const std::string data = line->substr(kData.size());
      if (data == "[DONE]") return {};
      const Json event = TRY(parse_json(data));
      if (event.is_object() && event.contains("error")) return unavailable(error_message_of(data));
      if (!listener(piece_of(event))) return {};
    }
  }

 private:
  static ChatPiece piece_of(const Json& event) {
    if (!event.is_object() || !event.contains("choices") || !event["choices"].is_array() ||
        event["choices"].empty()) {
      return {};
    }
    const Json& choice = event["choices"][0];
    if (!choice.is_object() || !choice.contains("delta") || !choice["delta"].is_object()) return {};
    return {text_member(choice["delta"], "reasoning_content"),
            text_member(choice["delta"], "content")};
  }

  // Errors: unavailable, for all answers but 200.
  Result<HttpExchange> ask(const char* method, const char* path, const std::string& body) const {
    HttpExchange exchange = TRY(HttpExchange::ask(
        address_, {.method = method, .path = path, .body = body, .api_key = options_.api_key}));
    if (exchange.status() != 200) return unavailable(error_message_of(exchange.rest()));
    return exchange;
  }

  ServerAddress address_;
  ChatOptions options_;
};

}  // namespace

Result<std::unique_ptr<ChatSource>> connect_chat(const std::string& url, ChatOptions options) {
  auto out = std::make_unique<RemoteChat>(TRY(parse_server_url(url)), std::move(options));
  TRY_OK(out->choose_model());
  return std::unique_ptr<ChatSource>(std::move(out));
}

}  // namespace quire
