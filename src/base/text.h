// Text in and out of the program: printf-style formatting into a std::string, strict numbers,
// UTF-8 checks, and excerpts of foreign text that are safe in a message or a log line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// snprintf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// The whole of `text` as a decimal integer, or nothing (sign allowed, no blanks, no overflow).
std::optional<int64_t> parse_int(std::string_view text);

// Byte offset of the first invalid UTF-8 sequence (overlong forms, surrogates and values past
// U+10FFFF count as invalid; RFC 3629), or nothing when all is valid.
std::optional<size_t> first_invalid_utf8(std::string_view text);

// At most `bytes_max` bytes of foreign text, cut at a character, with control characters and
// non-ASCII escaped: for error messages and logs (server-hardening rule 5).
std::string excerpt(std::string_view text, size_t bytes_max = 128);

// "1.5 GB", "37.4 kB": decimal units, three digits.
std::string human_bytes(int64_t bytes);

}  // namespace quire
