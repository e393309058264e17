// HttpRequestReader: bytes in, one HTTP request or a refusal out. No sockets, no clock.
//
// The head is first checked here, line by line as it arrives, by rules stricter than the standard:
// whatever two parsers could read differently is refused (CL with TE, two lengths, folded lines,
// bare LF, NUL). Then Boost.Beast parses it, and the body with it. Memory is bounded by HttpLimits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

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
  ~HttpRequestReader();

  // Takes from the front of `bytes` what belongs to this request; returns how much it took. What
  // is left over belongs to the next request.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }
  // True until the first byte arrives: the connection is idle, not slow.
  bool is_untouched() const;
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;
  uint64_t body_bytes_received() const;
  // What the body may take: its declared length, or the limit when it comes in chunks.
  size_t body_bytes_expected() const;
  const HttpRefusal& refusal() const;

  // The request; once, in state `complete`.
  HttpRequest take();

 private:
  struct Parser;
  size_t feed_head(std::string_view bytes);
  size_t feed_body(std::string_view bytes);
  bool end_line(std::string_view line);
  bool note_header(std::string_view line);
  void begin_body();
  void refuse(HttpRefusal refusal);

  const HttpLimits& limits_;
  State state_ = State::head;
  HttpRefusal refusal_;
  std::unique_ptr<Parser> parser_;
  std::string head_;       // until the head is complete
  size_t line_start_ = 0;  // of the line being received, in head_
  size_t n_lines_ = 0;     // complete ones, the request line first
  int n_content_lengths_ = 0;
  int n_transfer_encodings_ = 0;
  int n_hosts_ = 0;
  int n_blank_lines_ = 0;  // before the request line
  std::string held_;       // a piece of the body that Beast wants to see whole (a chunk's head)
  size_t n_chunks_ = 0;
  uint64_t chunked_bytes_ = 0;  // that the chunks so far declared
};

}  // namespace quire
