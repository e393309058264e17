// HTTP as the rest of the server sees it: one request, one response, the limits of both.
//
// Plain data, no sockets and no library. http_request_reader turns bytes into an HttpRequest,
// http_server moves bytes, and everything else in this folder works on these types alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire {

struct HttpHeader {
  std::string name;
  std::string value;
};

enum class HttpMethod : uint8_t { get, head, post, options, other };

// Which listener a request came in by: the public port, or the loopback port of the operator.
enum class Audience : uint8_t { users, operators };

struct HttpRequest {
  HttpMethod method = HttpMethod::get;
  std::string path;   // up to '?', as sent: never decoded, so that it has one spelling
  std::string query;  // after '?'
  std::vector<HttpHeader> headers;
  std::string body;
  std::string peer;  // address of the client, for logs
  Audience audience = Audience::users;
  bool keep_alive = true;
  bool http_1_0 = false;

  // The first header of that name (any case), or nothing.
  std::optional<std::string_view> header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
  bool close = false;  // end the connection after it
};

// Why bytes are not a request we take. The connection closes after the answer.
struct HttpRefusal {
  int status = 400;
  const char* code = nullptr;  // of the error body; null when there is none
  const char* message = "";    // fixed text: never what the client sent
};

// What a client may use of us. Every size is checked before memory is taken for it.
struct HttpLimits {
  size_t request_line_bytes_max = size_t{8} << 10;
  size_t header_bytes_max = size_t{16} << 10;   // of one header
  size_t headers_bytes_max = size_t{64} << 10;  // of all together
  size_t headers_max = 100;
  size_t body_bytes_max = size_t{16} << 20;
  size_t bodies_bytes_max = size_t{512} << 20;       // being received at once, all connections
  size_t chunks_max = 16384;                         // of a chunked body
  size_t chunk_head_bytes_max = 1024;                // size, extensions and trailer lines
  size_t pipelined_bytes_max = size_t{64} << 10;     // received while an answer is pending
  size_t stream_unsent_bytes_max = size_t{1} << 20;  // past it for output_stall_ms_max: abort
  int64_t head_ms_max = 10'000;                      // to receive a request's head, in all
  int64_t body_ms_max = 60'000;                      // to receive its body, in all
  int64_t idle_ms_max = 30'000;                      // between two requests of a connection
  int64_t output_stall_ms_max = 30'000;              // without the client taking any byte
  int64_t linger_ms_max = 2'000;                     // to read what is on its way after a refusal
  int64_t body_bytes_per_second_min = 1024;          // after the first five seconds
  int connections_max = 2048;
  int connections_per_address_max = 1024;
};

// One request and its answer on one connection. Never reused, so that a late event finds nothing.
using ExchangeId = Id<struct ExchangeTagType, uint64_t>;

// How a streamed body ends: `whole` ends the body properly, `broken` closes the connection so that
// the client sees that something is missing.
enum class StreamEnd : uint8_t { whole, broken };

// Answers to exchanges. Used by one thread, wake() apart; unknown or finished exchanges are
// ignored.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void respond(ExchangeId exchange, HttpResponse response) = 0;
  // Head first (its body is ignored), then any number of writes, then the end.
  virtual void begin_stream(ExchangeId exchange, HttpResponse head) = 0;
  virtual void write(ExchangeId exchange, std::string_view bytes) = 0;
  virtual void end_stream(ExchangeId exchange, StreamEnd end) = 0;
  // No new connections; ends when every answer that was begun has been sent.
  virtual void finish() = 0;
  // From any thread: the handler's on_wake() is called soon.
  virtual void wake() = 0;
};

// "Not Found"; for codes that we do not send, "Status".
std::string_view reason_phrase(int status);

// The head of a response, ready to send. `content_length` absent: a streamed body, in chunks
// unless the client speaks HTTP/1.0.
struct ResponseFraming {
  std::optional<size_t> content_length;
  bool keep_alive = true;
  bool chunked = false;
};
std::string serialize_head(const HttpResponse& response, const ResponseFraming& framing);

bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace quire
