#include "tools/http_exchange.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr size_t kLineBytesMax = size_t{4} << 20;

}  // namespace

Result<ServerAddress> parse_server_url(std::string_view url) {
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
  if (colon == std::string_view::npos) return ServerAddress{std::string(url), "80"};
  return ServerAddress{std::string(url.substr(0, colon)), std::string(url.substr(colon + 1))};
}

Result<HttpExchange> HttpExchange::open(const ServerAddress& address) {
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
  return HttpExchange(socket_fd);
}

HttpExchange::~HttpExchange() {
  if (socket_ >= 0) close(socket_);
}

HttpExchange::HttpExchange(HttpExchange&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      status_(other.status_),
      received_(std::move(other.received_)) {}

Status HttpExchange::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return unavailable("the server closed the connection");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Status HttpExchange::read_head() {
  const std::optional<std::string> first = TRY(line());
  // "HTTP/1.1 200 OK"
  const auto status = first && first->size() >= 12 ? parse_int(first->substr(9, 3)) : std::nullopt;
  if (!status) return unavailable("the server gave no answer");
  status_ = static_cast<int>(*status);
  while (true) {
    const std::optional<std::string> header = TRY(line());
    if (!header || header->empty()) return {};
  }
}

Result<HttpExchange> HttpExchange::ask(const ServerAddress& address, const HttpQuestion& question) {
  HttpExchange exchange = TRY(open(address));
  std::string request = std::string(question.method) + " " + question.path +
                        " HTTP/1.0\r\nHost: " + address.host +
                        "\r\nContent-Type: application/json\r\n";
  if (!question.api_key.empty()) request += "Authorization: Bearer " + question.api_key + "\r\n";
  request += format("Content-Length: %zu\r\n\r\n", question.body.size()) + question.body;
  TRY_OK(exchange.send(request));
  TRY_OK(exchange.read_head());
  return exchange;
}

Result<std::optional<std::string>> HttpExchange::line() {
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

std::string HttpExchange::rest() {
  while (received_.size() < kAnswerBytesMax && receive()) continue;
  return std::move(received_);
}

bool HttpExchange::receive() {
  char buffer[16384];
  const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  received_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string error_message_of(const std::string& body) {
  const Result<Json> json = parse_json(body);
  if (json.ok() && json.value().is_object() && json.value().contains("error")) {
    const Json& error = json.value()["error"];
    if (error.is_object() && error.contains("message") && error["message"].is_string()) {
      return error["message"].get<std::string>();
    }
  }
  return excerpt(body);
}

}  // namespace quire
