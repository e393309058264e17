#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    CHECK(!stop.empty());
    Pattern pattern{.text = std::move(stop), .borders = {0, 0}};
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      size_t border = pattern.borders[i];
      while (border > 0 && pattern.text[border] != pattern.text[i]) {
        border = pattern.borders[border];
      }
      if (pattern.text[border] == pattern.text[i]) ++border;
      pattern.borders.push_back(border);
    }
    patterns_.push_back(std::move(pattern));
  }
}

void StopMatcher::step(Pattern* pattern, char byte) const {
  size_t& matched = pattern->matched_bytes;
  while (matched > 0 && pattern->text[matched] != byte) matched = pattern->borders[matched];
  if (pattern->text[matched] == byte) ++matched;
}

std::string StopMatcher::push(std::string_view text) {
  if (is_stopped()) return {};
  for (const char byte : text) {
    held_.push_back(byte);
    size_t longest = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      step(&patterns_[i], byte);
      const size_t bytes = patterns_[i].text.size();
      if (patterns_[i].matched_bytes < bytes || bytes <= longest) continue;
      longest = bytes;
      matched_ = static_cast<int>(i);
    }
    if (is_stopped()) {
      held_.resize(held_.size() - longest);
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched_bytes);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  if (is_stopped()) return {};
  return std::exchange(held_, {});
}

}  // namespace quire
