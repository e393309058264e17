#include "base/text.h"

#include <array>
#include <charconv>
#include <cstdarg>
#include <cstdio>

#include "base/check.h"

namespace quire {

std::string format(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  va_list copy;
  va_copy(copy, args);
  const int size = std::vsnprintf(nullptr, 0, pattern, copy);
  va_end(copy);
  CHECK(size >= 0);
  std::string out(static_cast<size_t>(size), '\0');
  std::vsnprintf(out.data(), out.size() + 1, pattern, args);
  va_end(args);
  return out;
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || stop != end) return std::nullopt;
  return value;
}

namespace {

// The length of the sequence that `lead` opens, 0 when it opens none, with the least code point
// that may be written in that length.
struct Utf8Lead {
  size_t length;
  uint32_t bits;
  uint32_t least;
};

Utf8Lead classify(uint8_t lead) {
  if (lead < 0x80) return {1, lead, 0};
  if (lead >= 0xc2 && lead < 0xe0) return {2, lead & 0x1fU, 0x80};
  if (lead >= 0xe0 && lead < 0xf0) return {3, lead & 0x0fU, 0x800};
  if (lead >= 0xf0 && lead < 0xf5) return {4, lead & 0x07U, 0x10000};
  return {0, 0, 0};
}

// Length of the valid sequence at the head of `text`, or 0.
size_t valid_sequence(std::string_view text) {
  const Utf8Lead lead = classify(static_cast<uint8_t>(text[0]));
  if (lead.length == 0 || lead.length > text.size()) return 0;
  uint32_t code = lead.bits;
  for (size_t i = 1; i < lead.length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xc0U) != 0x80U) return 0;
    code = (code << 6) | (byte & 0x3fU);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= lead.least && code <= 0x10ffff && !surrogate ? lead.length : 0;
}

}  // namespace

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t length = valid_sequence(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string excerpt(std::string_view text, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
    const std::string piece = plain ? std::string(1, text[at]) : format("\\x%02x", byte);
    if (out.size() + piece.size() > bytes_max) return out + "...";
    out += piece;
    ++at;
  }
  return out;
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return format("%lld B", static_cast<long long>(bytes));
  return format(value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
}

}  // namespace quire
