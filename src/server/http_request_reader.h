// HttpRequestReader: bytes in, one HTTP request or a refusal out. No sockets, no clock.
//
// The head is first checked here, line by line as it arrives, by rules stricter than the standard:
// whatever two parsers could read differently is refused (CL with TE, two lengths, folded lines,
// bare LF, NUL). Then Boost.Beast parses it. Memory is bounded by HttpLimits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/chunked_body.h"
#include "server/http.h"

namespace quire {

class HttpRequestReader {
 public:
  enum class State : uint8_t {
    head,      // wants more of the head
    body,      // wants more of the body
    complete,  // take() gives the request
    refused,   // refusal() says why; nothing more is read
  };

  // `limits` outlives this.
  explicit HttpRequestReader(const HttpLimits& limits);

  // Takes from the front of `bytes` what belongs to this request; returns how much it took. What
  // is left over belongs to the next request.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }
  // True until the first byte arrives: the connection is idle, not slow.
  bool is_untouched() const;
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return state_ == State::body && expects_continue_; }
  size_t body_bytes_received() const { return request_.body.size(); }
  // What the body may take: its declared length, or the limit when it comes in chunks.
  size_t body_bytes_expected() const;
  const HttpRefusal& refusal() const;

  // The request; once, in state `complete`.
  HttpRequest take();

 private:
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  bool end_line(std::string_view line);
  bool note_header(std::string_view line);
  void end_head();
  void read_head(std::string_view head);
  void begin_body();
  void refuse(HttpRefusal refusal);

  const HttpLimits& limits_;
  State state_ = State::head;
  HttpRefusal refusal_;
  std::string head_;       // until the head is complete
  size_t line_start_ = 0;  // of the line being received, in head_
  size_t n_lines_ = 0;     // complete ones, the request line first
  int n_content_lengths_ = 0;
  size_t content_length_ = 0;
  int n_transfer_encodings_ = 0;
  int n_hosts_ = 0;
  int n_blank_lines_ = 0;  // before the request line
  std::optional<ChunkedBody> chunks_;
  size_t body_bytes_left_ = 0;  // of a body with a length
  HttpRequest request_;         // from the end of its head on
  bool expects_continue_ = false;
};

}  // namespace quire
