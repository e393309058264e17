// The special tokens that Kimi's chat format is made of, as text and as the ids of a tokenizer.
#pragma once

#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace quire {

namespace kimi {
inline constexpr std::string_view kImUser = "<|im_user|>";
inline constexpr std::string_view kImAssistant = "<|im_assistant|>";
inline constexpr std::string_view kImSystem = "<|im_system|>";
inline constexpr std::string_view kImMiddle = "<|im_middle|>";
inline constexpr std::string_view kImEnd = "<|im_end|>";
inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kSectionBegin = "<|tool_calls_section_begin|>";
inline constexpr std::string_view kSectionEnd = "<|tool_calls_section_end|>";
inline constexpr std::string_view kCallBegin = "<|tool_call_begin|>";
inline constexpr std::string_view kArgumentBegin = "<|tool_call_argument_begin|>";
inline constexpr std::string_view kCallEnd = "<|tool_call_end|>";
}  // namespace kimi

struct KimiTokens {
  Token im_end;
  Token think_begin;
  Token think_end;
  Token section_begin;
  Token section_end;
  Token call_begin;
  Token argument_begin;
  Token call_end;

  // Errors: unsupported, naming the token that the tokenizer lacks.
  static Result<KimiTokens> resolve(const Tokenizer& tokenizer);
};

}  // namespace quire
