// For tests: a small tokenizer in Kimi's file format, built in memory.
//
// 256 single bytes, then a few merges in the order given; specials as Kimi has them, at the same
// offsets from the first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "text/tokenizer.h"

namespace quire::testing {

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= n ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

// A tiktoken file of the single bytes, then `merges`.
inline std::string ranks_file(const std::vector<std::string>& merges) {
  std::string out;
  for (int i = 0; i < 256; ++i) {
    out += base64(std::string(1, static_cast<char>(i))) + format(" %d\n", i);
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    out += base64(merges[i]) + format(" %zu\n", 256 + i);
  }
  return out;
}

inline std::string specials_config(size_t n_ranks) {
  struct Special {
    size_t offset;
    const char* text;
    bool is_special;
  };
  constexpr Special kSpecials[] = {
      {0, "[BOS]", true},
      {1, "[EOS]", true},
      {2, "<|im_end|>", true},
      {3, "<|im_user|>", true},
      {4, "<|im_assistant|>", true},
      {9, "[EOT]", true},
      {10, "<|im_system|>", true},
      {11, "<|tool_calls_section_begin|>", false},
      {12, "<|tool_calls_section_end|>", false},
      {13, "<|tool_call_begin|>", false},
      {14, "<|tool_call_argument_begin|>", false},
      {15, "<|tool_call_end|>", false},
      {17, "<|im_middle|>", true},
      {22, "<think>", false},
      {23, "</think>", false},
      {255, "[PAD]", true},
  };
  std::string out;
  for (const Special& special : kSpecials) {
    out += format("%s\"%zu\": {\"content\": \"%s\", \"special\": %s}", out.empty() ? "" : ", ",
                  n_ranks + special.offset, special.text, special.is_special ? "true" : "false");
  }
  return "{\"added_tokens_decoder\": {" + out + "}}";
}

inline Tokenizer small_tokenizer() {
  // Enough that tokens cross the borders of words, of JSON and of UTF-8 characters.
  const std::vector<std::string> merges = {
      "he",     "ll",       "llo",       "hello",    " w",   "or",      "ld",   "orld",
      " world", "th",       "the",       " the",     "\": ", "\",",     "\"}",  "{\"",
      ", \"",   "func",     "functions", ".get",     "get_", "weather", ":0",   "ci",
      "city",   "\xe4\xbd", "\x9d\xe5",  "12",       "34",   "  ",      "\n\n", "ab",
      "abab",   "\xf0\x9f", "\x99\x82",  "\"city\"", "true", "Paris",   "ing",  "\\n",
  };
  auto out = Tokenizer::parse(ranks_file(merges), specials_config(256 + merges.size()));
  if (!out.ok()) std::fprintf(stderr, "%s\n", out.error().message.c_str());
  CHECK(out.ok());
  return std::move(out).value();
}

}  // namespace quire::testing
