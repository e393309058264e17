#include "text/prompt.h"

namespace quire {

void Prompt::markup(std::string_view special) {
  segments_.push_back({Kind::markup, std::string(special)});
}

void Prompt::content(std::string_view text) {
  if (text.empty()) return;
  if (segments_.empty() || segments_.back().kind != Kind::content) {
    segments_.push_back({Kind::content, {}});
  }
  segments_.back().text += text;
}

std::string Prompt::text() const {
  std::string out;
  for (const Segment& segment : segments_) out += segment.text;
  return out;
}

Result<std::vector<Token>> Prompt::encode(const Tokenizer& tokenizer) const {
  std::vector<Token> out;
  for (const Segment& segment : segments_) {
    if (segment.kind == Kind::content) {
      const std::vector<Token> tokens = tokenizer.encode(segment.text);
      out.insert(out.end(), tokens.begin(), tokens.end());
      continue;
    }
    const auto token = tokenizer.special(segment.text);
    if (!token) return unsupported("the tokenizer has no special token " + segment.text);
    out.push_back(*token);
  }
  return out;
}

}  // namespace quire
