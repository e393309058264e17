// Prompt: a rendered chat as segments, so that text from a user can never become a special token.
//
// Markup is written by a chat format and names one special token; content is everything else and
// is tokenized as plain text, whatever it says. Neighbouring contents are one content, because
// the tokenizer's pieces may reach across.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace quire {

class Prompt {
 public:
  enum class Kind { markup, content };
  struct Segment {
    Kind kind;
    std::string text;
  };

  void markup(std::string_view special);
  void content(std::string_view text);

  const std::vector<Segment>& segments() const { return segments_; }
  // All segments end to end: what a template would have printed. For people and for tests; never
  // to be tokenized, because here markup and content look alike.
  std::string text() const;
  // Errors: unsupported, when the tokenizer lacks a markup's token.
  Result<std::vector<Token>> encode(const Tokenizer& tokenizer) const;

 private:
  std::vector<Segment> segments_;
};

}  // namespace quire
