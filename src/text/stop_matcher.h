// StopMatcher: ends a text at the first of several stop strings, however the text is cut.
//
// Text that could be the beginning of a stop string is held back until it is certain. The match is
// the one that ends first; of several that end at the same byte, the longest. Linear in the text,
// times the number of stop strings. Fed with whole characters, it gives whole characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopMatcher {
 public:
  // Each stop string is not empty. None at all is allowed: nothing is ever held then.
  explicit StopMatcher(std::vector<std::string> stops);

  // The part of the text so far that is certain not to belong to a stop string and was not given
  // before. After a match: what precedes it, and from then on nothing.
  std::string push(std::string_view text);
  // At the end of the text, what was held back.
  std::string finish();

  bool is_stopped() const { return matched_ >= 0; }
  // Which stop string matched, by its place in the list; -1 before.
  int matched() const { return matched_; }

 private:
  // Knuth, Morris and Pratt's automaton of one stop string.
  struct Pattern {
    std::string text;
    std::vector<size_t> borders;  // [bytes + 1], longest proper border of each prefix
    size_t matched_bytes = 0;     // of `text`, at the end of the text so far
  };

  void step(Pattern* pattern, char byte) const;

  std::vector<Pattern> patterns_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace quire
