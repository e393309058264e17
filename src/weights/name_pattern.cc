#include "weights/name_pattern.h"

#include <utility>

#include "base/text.h"

namespace quire {

namespace {

constexpr size_t kPatternBytesMax = 512;
constexpr size_t kSequencesMax = 64;

}  // namespace

// Reads a pattern left to right, keeping every sequence that the groups so far expand to.
class NamePatternParser {
 public:
  using Piece = NamePattern::Piece;
  using Sequence = NamePattern::Sequence;

  explicit NamePatternParser(std::string_view text) : text_(text) {}

  Result<std::vector<Sequence>> parse() {
    if (text_.starts_with('^')) ++at_;
    while (at_ < text_.size()) {
      if (text_[at_] == '$' && at_ + 1 == text_.size()) return std::move(sequences_);
      if (text_[at_] == '(') {
        TRY_OK(group());
      } else {
        const Piece piece = TRY(next_piece());
        for (Sequence& sequence : sequences_) sequence.push_back(piece);
      }
    }
    for (Sequence& sequence : sequences_) sequence.push_back({Piece::Kind::any_run});
    return std::move(sequences_);
  }

 private:
  Error refuse() const {
    return unsupported(format("pattern \"re:%s\": byte %zu is past what is understood in it",
                              excerpt(text_).c_str(), at_));
  }

  Result<Piece> next_piece() {
    const char c = text_[at_];
    if (c == '.') {
      ++at_;
      if (at_ < text_.size() && text_[at_] == '*') {
        ++at_;
        return Piece{Piece::Kind::any_run};
      }
      return Piece{Piece::Kind::any};
    }
    if (c == '\\') {
      const bool escapes_punctuation =
          at_ + 1 < text_.size() &&
          std::string_view(".()|*+?[]{}^$\\-/").find(text_[at_ + 1]) != std::string_view::npos;
      if (!escapes_punctuation) return refuse();
      at_ += 2;
      return literal(text_[at_ - 1]);
    }
    if (std::string_view("()|*+?[]{}^$").find(c) != std::string_view::npos) return refuse();
    ++at_;
    return literal(c);
  }

  // A character, unless something that repeats it follows.
  Result<Piece> literal(char c) const {
    if (at_ < text_.size() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos) {
      return refuse();
    }
    return Piece{Piece::Kind::character, c};
  }

  // "(a|b|c)": every sequence so far, followed by each alternative.
  Status group() {
    ++at_;
    std::vector<Sequence> choices(1);
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == '|') {
        ++at_;
        choices.emplace_back();
      } else {
        choices.back().push_back(TRY(next_piece()));
      }
    }
    if (at_ == text_.size()) return refuse();
    ++at_;
    if (at_ < text_.size() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos) {
      return refuse();
    }
    if (sequences_.size() * choices.size() > kSequencesMax) return refuse();
    std::vector<Sequence> product;
    for (const Sequence& head : sequences_) {
      for (const Sequence& choice : choices) {
        product.push_back(head);
        product.back().insert(product.back().end(), choice.begin(), choice.end());
      }
    }
    sequences_ = std::move(product);
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Sequence> sequences_{Sequence{}};
};

Result<NamePattern> NamePattern::parse(std::string_view text) {
  if (text.size() > kPatternBytesMax) {
    return invalid_argument(
        format("pattern of %zu bytes, expected at most %zu", text.size(), kPatternBytesMax));
  }
  NamePattern pattern;
  if (text.starts_with("re:")) {
    pattern.alternatives_ = TRY(NamePatternParser(text.substr(3)).parse());
    return pattern;
  }
  Sequence whole;
  for (const char c : text) whole.push_back({Piece::Kind::character, c});
  pattern.alternatives_.push_back(std::move(whole));
  return pattern;
}

bool NamePattern::matches(std::string_view name) const {
  for (const Sequence& sequence : alternatives_) {
    if (matches(sequence, name)) return true;
  }
  return false;
}

// Greedy with one point to come back to: the latest `any_run` takes one character more whenever
// what follows it fails. An earlier run never needs to change once a later one was reached.
bool NamePattern::matches(const Sequence& sequence, std::string_view name) {
  size_t at = 0;
  size_t piece = 0;
  size_t run_piece = sequence.size();
  size_t run_at = 0;
  while (at < name.size()) {
    const bool more = piece < sequence.size();
    if (more && sequence[piece].kind == Piece::Kind::any_run) {
      run_piece = piece++;
      run_at = at;
    } else if (more && (sequence[piece].kind == Piece::Kind::any ||
                        sequence[piece].character == name[at])) {
      ++piece;
      ++at;
    } else if (run_piece < sequence.size()) {
      piece = run_piece + 1;
      at = ++run_at;
    } else {
      return false;
    }
  }
  while (piece < sequence.size() && sequence[piece].kind == Piece::Kind::any_run) ++piece;
  return piece == sequence.size();
}

}  // namespace quire
