// NamePattern: a module name, or the small part of regular expressions that quantization configs
// use to name modules: "lm_head", "re:.*mlp\.(gate|up)_proj.*".
//
// Not a regular expression engine: a pattern comes from a model folder, and must neither run for
// exponential time nor recurse. It is expanded into a bounded number of sequences of characters,
// "any" and "any number of any", each matched in time proportional to pattern times name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

class NamePattern {
 public:
  // Understood after "re:": characters, `.`, `.*`, escaped punctuation, groups of alternatives that
  // do not nest, a leading `^` and a trailing `$`. As in compressed-tensors, a regular expression
  // matches from the start of a name and need not reach its end; plain text is a whole name.
  // Errors: unsupported, naming the pattern; invalid_argument when it is too long.
  static Result<NamePattern> parse(std::string_view text);

  bool matches(std::string_view name) const;

 private:
  struct Piece {
    enum class Kind : uint8_t { character, any, any_run } kind = Kind::character;
    char character = 0;
  };
  using Sequence = std::vector<Piece>;
  friend class NamePatternParser;

  static bool matches(const Sequence& sequence, std::string_view name);

  std::vector<Sequence> alternatives_;
};

}  // namespace quire
