// A chat with a server: one HTTP request an answer, its events read as they come.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "tools/chat_source.h"

namespace quire {

namespace {

constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr size_t kLineBytesMax = size_t{4} << 20;

struct Address {
  std::string host;
  std::string port;
};

Result<Address> parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.substr(0, kScheme.size()) != kScheme) {
    return invalid_argument("--url: expected http://HOST:PORT, found " + excerpt(url));
  }
  url.remove_prefix(kScheme.size());
  while (!url.empty() && url.back() == '/') url.remove_suffix(1);
  const size_t colon = url.rfind(':');
  if (url.empty() || url.find('/') != std::string_view::npos) {
    return invalid_argument("--url: expected http://HOST:PORT");
  }
  if (colon == std::string_view::npos) return Address{std::string(url), "80"};
  return Address{std::string(url.substr(0, colon)), std::string(url.substr(colon + 1))};
}

// A connection for one request. HTTP/1.0, so that the answer simply ends with the connection.
class Exchange {
 public:
  static Result<Exchange> open(const Address& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found) != 0) {
      return unavailable("cannot find " + address.host + " port " + address.port);
    }
    int socket_fd = -1;
    for (const addrinfo* at = found; at != nullptr && socket_fd < 0; at = at->ai_next) {
      socket_fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
      if (socket_fd >= 0 && connect(socket_fd, at->ai_addr, at->ai_addrlen) != 0) {
        close(std::exchange(socket_fd, -1));
      }
    }
    freeaddrinfo(found);
    if (socket_fd < 0) {
      return unavailable("nobody answers at " + address.host + " port " + address.port);
    }
    return Exchange(socket_fd);
  }
  ~Exchange() {
    if (socket_ >= 0) close(socket_);
  }
  Exchange(Exchange&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Status send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return unavailable("the server closed the connection");
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return {};
  }

  // The next line without its end; nothing at the end of the answer.
  Result<std::optional<std::string>> line() {
    while (true) {
      const size_t end = received_.find('\n');
      if (end != std::string::npos) {
        std::string out = received_.substr(0, end);
        received_.erase(0, end + 1);
        if (!out.empty() && out.back() == '\r') out.pop_back();
        return std::optional(std::move(out));
      }
      if (received_.size() > kLineBytesMax) return unavailable("a line of the answer is too long");
      if (!receive()) return std::optional<std::string>();
    }
  }

  // Everything up to the end.
  std::string rest() {
    while (received_.size() < kAnswerBytesMax && receive()) continue;
    return std::move(received_);
  }

 private:
  explicit Exchange(int socket_fd) : socket_(socket_fd) {}

  bool receive() {
    char buffer[16384];
    const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    received_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  int socket_;
  std::string received_;
};

std::string message_of(const std::string& body) {
  const Result<Json> json = parse_json(body);
  if (json.ok() && json.value().is_object() && json.value().contains("error")) {
    const Json& error = json.value()["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>();
    }
  }
  return excerpt(body);
}

std::string text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

class RemoteChat final : public ChatSource {
 public:
  RemoteChat(Address address, ChatOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}

  // Asks for the server's models when none was named.
  Status choose_model() {
    if (!options_.model.empty()) return {};
    Exchange exchange = TRY(ask("GET", "/v1/models", ""));
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
    Exchange exchange = TRY(ask("POST", "/v1/chat/completions", dump_json(body)));
    constexpr std::string_view kData = "data: ";
    while (true) {
      const std::optional<std::string> line = TRY(exchange.line());
      if (!line) return unavailable("the answer broke off");
      if (line->compare(0, kData.size(), kData) != 0) continue;
      const std::string data = line->substr(kData.size());
      if (data == "[DONE]") return {};
      const Json event = TRY(parse_json(data));
      if (event.is_object() && event.contains("error")) return unavailable(message_of(data));
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

  // Sends a request and reads the head of its answer. Errors: unavailable, for all but 200.
  Result<Exchange> ask(const char* method, const char* path, const std::string& body) const {
    Exchange exchange = TRY(Exchange::open(address_));
    std::string request = std::string(method) + " " + path + " HTTP/1.0\r\nHost: " + address_.host +
                          "\r\nContent-Type: application/json\r\n";
    if (!options_.api_key.empty()) request += "Authorization: Bearer " + options_.api_key + "\r\n";
    request += format("Content-Length: %zu\r\n\r\n", body.size()) + body;
    TRY_OK(exchange.send(request));
    const std::optional<std::string> status = TRY(exchange.line());
    if (!status || status->size() < 12) return unavailable("the server gave no answer");
    while (true) {
      const std::optional<std::string> header = TRY(exchange.line());
      if (!header || header->empty()) break;
    }
    if (status->substr(9, 3) != "200") return unavailable(message_of(exchange.rest()));
    return exchange;
  }

  Address address_;
  ChatOptions options_;
};

}  // namespace

Result<std::unique_ptr<ChatSource>> connect_chat(const std::string& url, ChatOptions options) {
  auto out = std::make_unique<RemoteChat>(TRY(parse_url(url)), std::move(options));
  TRY_OK(out->choose_model());
  return std::unique_ptr<ChatSource>(std::move(out));
}

}  // namespace quire
