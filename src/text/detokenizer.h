// Detokenizer: token ids into text as they are generated, for answers without structure.
//
// Not a parser of thoughts or tool calls: that is text/output_parser.h, which works on the ids.
#pragma once

#include <string>

#include "base/ids.h"
#include "text/tokenizer.h"
#include "text/utf8_assembler.h"

namespace quire {

// What becomes of special tokens in shown text.
enum class SpecialText {
  skip_hidden,  // control tokens leave no trace; marks of thoughts and tool calls are written
  show_all,     // each is written by its name
};

class Detokenizer {
 public:
  // `tokenizer` outlives this.
  Detokenizer(const Tokenizer& tokenizer, SpecialText specials)
      : tokenizer_(tokenizer), specials_(specials) {}

  // The text that is certain after `token`: whole characters, possibly none. A special token ends
  // an incomplete character before it.
  std::string push(Token token);
  // What was still held, at the end of the answer.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  SpecialText specials_;
  Utf8Assembler assembler_;
};

}  // namespace quire
