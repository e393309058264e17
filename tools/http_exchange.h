// One HTTP request to a server and its answer, read line by line as it comes.
//
// For the tools that talk to a server (chat, bench serve). HTTP/1.0 without keep-alive, so that the
// answer simply ends with the connection; no TLS, no redirects: not a general client.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

struct ServerAddress {
  std::string host;
  std::string port;
};

// "http://HOST[:PORT]", with nothing after it. Errors: invalid_argument.
Result<ServerAddress> parse_server_url(std::string_view url);

struct HttpQuestion {
  const char* method = "GET";
  std::string path;
  std::string body;     // JSON
  std::string api_key;  // sent as a bearer token unless empty
};

class HttpExchange {
 public:
  // Connects, sends the question and reads the head of the answer. Errors: unavailable.
  static Result<HttpExchange> ask(const ServerAddress& address, const HttpQuestion& question);

  ~HttpExchange();
  HttpExchange(HttpExchange&& other) noexcept;
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  int status() const { return status_; }
  // The next line of the body without its end; nothing at the end of the answer.
  Result<std::optional<std::string>> line();
  // Everything up to the end.
  std::string rest();

 private:
  explicit HttpExchange(int socket_fd) : socket_(socket_fd) {}
  static Result<HttpExchange> open(const ServerAddress& address);
  Status send(std::string_view bytes);
  Status read_head();
  bool receive();

  int socket_;
  int status_ = 0;
  std::string received_;
};

// The message of a server's error body, or an excerpt of what came instead.
std::string error_message_of(const std::string& body);

}  // namespace quire
