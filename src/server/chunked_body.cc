#include "server/chunked_body.h"

#include <algorithm>
#include <optional>

namespace quire {

namespace {

constexpr size_t kSizeDigitsMax = 8;
constexpr std::string_view kLineEnd = "\r\n";

std::optional<uint64_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

bool is_text(std::string_view line) {
  return std::all_of(line.begin(), line.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || c == '\t';
  });
}

}  // namespace

size_t ChunkedBody::feed(std::string_view bytes, std::string* body) {
  const size_t offered = bytes.size();
  while (state_ == State::more && !bytes.empty()) {
    switch (part_) {
      case Part::size_line:
        if (take_line(&bytes)) end_size_line();
        break;
      case Part::data: {
        const size_t n = std::min(chunk_left_, bytes.size());
        body->append(bytes.substr(0, n));
        bytes.remove_prefix(n);
        chunk_left_ -= n;
        if (chunk_left_ == 0) part_ = Part::data_end;
        break;
      }
      case Part::data_end:
        if (take_line(&bytes)) end_data();
        break;
      case Part::trailers:
        if (take_line(&bytes)) end_trailer();
        break;
    }
  }
  return offered - bytes.size();
}

bool ChunkedBody::take_line(std::string_view* bytes) {
  // A line that was whole has been looked at; this begins the next.
  if (line_.ends_with('\n')) line_.clear();
  const size_t newline = bytes->find('\n');
  const bool whole = newline != std::string_view::npos;
  const size_t n = whole ? newline + 1 : bytes->size();
  // After the data of a chunk nothing but the end of the line may come.
  const size_t bytes_max = part_ == Part::data_end ? kLineEnd.size() : limits_.chunk_head_bytes_max;
  if (line_.size() + n > bytes_max) {
    state_ = State::malformed;
    return false;
  }
  line_.append(bytes->substr(0, n));
  bytes->remove_prefix(n);
  return whole;
}

void ChunkedBody::end_data() {
  if (line_ != kLineEnd) state_ = State::malformed;
  part_ = Part::size_line;
}

void ChunkedBody::end_size_line() {
  std::string_view line = line_;
  if (!line.ends_with(kLineEnd)) {
    state_ = State::malformed;
    return;
  }
  line.remove_suffix(kLineEnd.size());
  uint64_t size = 0;
  size_t n_digits = 0;
  while (n_digits < line.size() && n_digits <= kSizeDigitsMax) {
    const auto digit = hex_digit(line[n_digits]);
    if (!digit) break;
    size = size * 16 + *digit;
    ++n_digits;
  }
  const std::string_view rest = line.substr(n_digits);
  const bool has_size = n_digits >= 1 && n_digits <= kSizeDigitsMax;
  if (!has_size || !(rest.empty() || rest.front() == ';') || !is_text(rest)) {
    state_ = State::malformed;
    return;
  }
  declared_ += size;
  n_chunks_ += size > 0;
  if (declared_ > limits_.body_bytes_max || n_chunks_ > limits_.chunks_max) {
    state_ = State::too_large;
    return;
  }
  chunk_left_ = static_cast<size_t>(size);
  part_ = size > 0 ? Part::data : Part::trailers;
}

void ChunkedBody::end_trailer() {
  std::string_view line = line_;
  trailer_bytes_ += line.size();
  if (!line.ends_with(kLineEnd) || trailer_bytes_ > limits_.chunk_head_bytes_max) {
    state_ = State::malformed;
    return;
  }
  line.remove_suffix(kLineEnd.size());
  if (line.empty()) {
    state_ = State::complete;
    return;
  }
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || !is_text(line)) state_ = State::malformed;
}

}  // namespace quire
