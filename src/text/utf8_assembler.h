// Utf8Assembler: bytes that arrive in any cut, out as whole UTF-8 characters.
//
// Tokens end in the middle of characters. An incomplete sequence is held until it is complete or
// cannot become so; what cannot is replaced by U+FFFD, one for each maximal part of a sequence
// (Unicode 15, part 3.9, "U+FFFD substitution of maximal subparts"), as Python's decoder does.
// The output does not depend on how the bytes were cut.
#pragma once

#include <string>
#include <string_view>

namespace quire {

class Utf8Assembler {
 public:
  // Appends to `out` the characters that are certain now.
  void push(std::string_view bytes, std::string* out);
  // No more bytes: an incomplete sequence becomes U+FFFD. The assembler is as new afterwards.
  void finish(std::string* out);

  bool is_holding() const { return held_bytes_ > 0; }

 private:
  void push_byte(unsigned char byte, std::string* out);

  char held_[4] = {};  // the sequence begun and not yet complete
  int held_bytes_ = 0;
  int wanted_bytes_ = 0;  // length of that sequence when complete
};

}  // namespace quire
