#include "text/kimi_tokens.h"

#include <string>

namespace quire {

namespace {

Result<Token> need(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.special(text);
  if (!id) return unsupported("the tokenizer has no special token " + std::string(text));
  return *id;
}

}  // namespace

Result<KimiTokens> KimiTokens::resolve(const Tokenizer& tokenizer) {
  KimiTokens out{};
  out.im_end = TRY(need(tokenizer, kimi::kImEnd));
  out.think_begin = TRY(need(tokenizer, kimi::kThinkBegin));
  out.think_end = TRY(need(tokenizer, kimi::kThinkEnd));
  out.section_begin = TRY(need(tokenizer, kimi::kSectionBegin));
  out.section_end = TRY(need(tokenizer, kimi::kSectionEnd));
  out.call_begin = TRY(need(tokenizer, kimi::kCallBegin));
  out.argument_begin = TRY(need(tokenizer, kimi::kArgumentBegin));
  out.call_end = TRY(need(tokenizer, kimi::kCallEnd));
  return out;
}

}  // namespace quire
