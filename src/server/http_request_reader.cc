#include "server/http_request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

namespace beast_http = boost::beast::http;

constexpr HttpRefusal kMalformed{400, nullptr, "The request is not valid HTTP."};
constexpr HttpRefusal kAmbiguous{400, nullptr, "The length of the request body is ambiguous."};
constexpr HttpRefusal kLineTooLong{414, "uri_too_long", "The request line is too long."};
constexpr HttpRefusal kHeadersTooLarge{431, "headers_too_large",
                                       "The request headers are too large."};
constexpr HttpRefusal kBodyTooLarge{413, "request_too_large", "The request body is too large."};
constexpr HttpRefusal kChunkMalformed{400, nullptr, "A chunk of the request body is not valid."};
constexpr HttpRefusal kLengthRequired{411, "length_required",
                                      "The request needs a Content-Length header."};
constexpr HttpRefusal kEncoded{415, "unsupported_media_type",
                               "Compressed request bodies are not supported."};
constexpr HttpRefusal kVersion{505, nullptr, "Only HTTP/1.1 and HTTP/1.0 are supported."};

// Digits of a Content-Length that cannot overflow 64 bits.
constexpr size_t kLengthDigitsMax = 18;

bool is_token_char(char c) {
  constexpr std::string_view kExtra = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         kExtra.find(c) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

HttpMethod method_of(beast_http::verb verb) {
  if (verb == beast_http::verb::get) return HttpMethod::get;
  if (verb == beast_http::verb::head) return HttpMethod::head;
  if (verb == beast_http::verb::post) return HttpMethod::post;
  if (verb == beast_http::verb::options) return HttpMethod::options;
  return HttpMethod::other;
}

}  // namespace

HttpRequestReader::HttpRequestReader(const HttpLimits& limits) : limits_(limits) {}

bool HttpRequestReader::is_untouched() const { return state_ == State::head && head_.empty(); }

size_t HttpRequestReader::body_bytes_expected() const {
  return chunks_ ? limits_.body_bytes_max : content_length_;
}

const HttpRefusal& HttpRequestReader::refusal() const {
  CHECK(state_ == State::refused);
  return refusal_;
}

void HttpRequestReader::refuse(HttpRefusal refusal) {
  state_ = State::refused;
  refusal_ = refusal;
}

size_t HttpRequestReader::feed(std::string_view bytes) {
  size_t taken = 0;
  if (state_ == State::head) taken = feed_head(bytes);
  if (state_ == State::body) taken += feed_body(bytes.substr(taken));
  return taken;
}

size_t HttpRequestReader::feed_head(std::string_view bytes) {
  size_t taken = 0;
  while (state_ == State::head && taken < bytes.size()) {
    const size_t line_end = bytes.find('\n', taken);
    const bool whole = line_end != std::string_view::npos;
    const size_t end = whole ? line_end + 1 : bytes.size();
    const size_t line_bytes_max =
        n_lines_ == 0 ? limits_.request_line_bytes_max : limits_.header_bytes_max;
    // Checked before the bytes are kept: +2 for the line's end.
    if (head_.size() - line_start_ + (end - taken) > line_bytes_max + 2) {
      refuse(n_lines_ == 0 ? kLineTooLong : kHeadersTooLarge);
      break;
    }
    head_.append(bytes.substr(taken, end - taken));
    taken = end;
    if (!whole) break;
    std::string_view line = std::string_view(head_).substr(line_start_);
    line.remove_suffix(1);
    if (line.empty() || line.back() != '\r') {
      refuse(kMalformed);
      break;
    }
    line.remove_suffix(1);
    if (!end_line(line)) break;
  }
  return taken;
}

// A complete line of the head, without its end. False when there is no more of the head to read.
bool HttpRequestReader::end_line(std::string_view line) {
  if (line.find('\r') != std::string_view::npos || line.find('\0') != std::string_view::npos) {
    refuse(kMalformed);
    return false;
  }
  if (n_lines_ == 0 && line.empty() && line_start_ == 0) {
    // One empty line before the request line is forgiven (RFC 9112, 2.2).
    if (n_blank_lines_++ > 0) refuse(kMalformed);
    head_.clear();
    return state_ == State::head;
  }
  if (line.empty()) {
    end_head();
    return false;
  }
  if (n_lines_ > 0 && !note_header(line)) return false;
  ++n_lines_;
  line_start_ = head_.size();
  return true;
}

bool HttpRequestReader::note_header(std::string_view line) {
  if (n_lines_ > limits_.headers_max ||
      head_.size() > limits_.request_line_bytes_max + limits_.headers_bytes_max) {
    refuse(kHeadersTooLarge);
    return false;
  }
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || name.empty() ||
      !std::all_of(name.begin(), name.end(), is_token_char)) {
    refuse(kMalformed);  // a folded line, too: it begins with a blank
    return false;
  }
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (equal_ignoring_case(name, "content-length")) {
    ++n_content_lengths_;
    const bool digits =
        std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (value.empty() || !digits) {
      refuse(kMalformed);
    } else if (value.size() > kLengthDigitsMax) {
      refuse(kBodyTooLarge);
    } else {
      content_length_ = static_cast<size_t>(parse_int(value).value());
    }
  } else if (equal_ignoring_case(name, "transfer-encoding")) {
    ++n_transfer_encodings_;
    if (!equal_ignoring_case(value, "chunked")) refuse(kMalformed);
  } else if (equal_ignoring_case(name, "content-encoding")) {
    if (!equal_ignoring_case(value, "identity")) refuse(kEncoded);
  } else if (equal_ignoring_case(name, "host")) {
    ++n_hosts_;
  }
  if (state_ == State::head && n_content_lengths_ + n_transfer_encodings_ > 1) refuse(kAmbiguous);
  return state_ == State::head;
}

// The head is complete and unambiguous.
void HttpRequestReader::end_head() {
  read_head(head_);
  head_ = {};
  if (state_ == State::head) begin_body();
}

// What Beast makes of the head.
void HttpRequestReader::read_head(std::string_view head) {
  beast_http::request_parser<beast_http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(head.size()));
  parser.body_limit(boost::none);
  parser.skip(true);  // the body is ours
  boost::beast::error_code error;
  parser.put(boost::asio::buffer(head.data(), head.size()), error);
  if (error == beast_http::error::bad_version) return refuse(kVersion);
  if (error || !parser.is_header_done()) return refuse(kMalformed);
  const auto& message = parser.get();
  if (message.version() != 11 && message.version() != 10) return refuse(kVersion);
  request_.http_1_0 = message.version() == 10;
  request_.method = method_of(message.method());
  request_.keep_alive = message.keep_alive();
  const std::string_view target(message.target().data(), message.target().size());
  const size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request_.query = std::string(target.substr(question + 1));
  for (const auto& field : message) {
    request_.headers.push_back({std::string(field.name_string().data(), field.name_string().size()),
                                std::string(field.value().data(), field.value().size())});
  }
}

void HttpRequestReader::begin_body() {
  const bool has_body = n_content_lengths_ + n_transfer_encodings_ > 0;
  if (n_hosts_ > 1 || (n_hosts_ == 0 && !request_.http_1_0)) return refuse(kMalformed);
  if (n_transfer_encodings_ > 0 && request_.http_1_0) return refuse(kAmbiguous);
  if (request_.method == HttpMethod::post && !has_body) return refuse(kLengthRequired);
  if (content_length_ > limits_.body_bytes_max) return refuse(kBodyTooLarge);
  if (n_transfer_encodings_ > 0) chunks_.emplace(limits_);
  body_bytes_left_ = content_length_;
  expects_continue_ = equal_ignoring_case(request_.header("expect").value_or(""), "100-continue");
  state_ = chunks_ || body_bytes_left_ > 0 ? State::body : State::complete;
}

size_t HttpRequestReader::feed_body(std::string_view bytes) {
  if (!chunks_) {
    const size_t n = std::min(body_bytes_left_, bytes.size());
    request_.body.append(bytes.substr(0, n));
    body_bytes_left_ -= n;
    if (body_bytes_left_ == 0) state_ = State::complete;
    return n;
  }
  const size_t taken = chunks_->feed(bytes, &request_.body);
  switch (chunks_->state()) {
    case ChunkedBody::State::more:
      break;
    case ChunkedBody::State::complete:
      state_ = State::complete;
      break;
    case ChunkedBody::State::malformed:
      refuse(kChunkMalformed);
      break;
    case ChunkedBody::State::too_large:
      refuse(kBodyTooLarge);
      break;
  }
  return taken;
}

HttpRequest HttpRequestReader::take() {
  CHECK(state_ == State::complete);
  return std::move(request_);
}

}  // namespace quire
