#include "text/detokenizer.h"

namespace quire {

std::string Detokenizer::push(Token token) {
  std::string out;
  if (!tokenizer_.is_special(token)) {
    assembler_.push(tokenizer_.token_bytes(token), &out);
    return out;
  }
  assembler_.finish(&out);
  const bool skip = specials_ == SpecialText::skip_hidden && tokenizer_.is_hidden(token);
  if (!skip) out += tokenizer_.token_bytes(token);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  assembler_.finish(&out);
  return out;
}

}  // namespace quire
