// The split of text into pieces that Kimi's tokenizer makes before it merges bytes.
//
// Two steps, as the publisher's encode does them: slices of bounded length (slice_text), then the
// pieces of each slice by its split pattern (PieceReader). Pieces never cross slices, and a slice
// does not see its neighbours. Text should be UTF-8; a byte that is not counts as a symbol of its
// own, so that no input is refused or changed.
//
// The pattern, alternatives in order (&& is set intersection):
//   [\p{Han}]+
//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*
//       [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+
//       [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   \p{N}{1,3}
//    ?[^\s\p{L}\p{N}]+[\r\n]*
//   \s*[\r\n]+
//   \s+(?!\S)
//   \s+
// Source: moonshotai Kimi-K2 repositories, tokenization_kimi.py, `pat_str`.
//
// Written by hand over ICU's character properties, because ICU's regex engine runs at 6.5 MB/s and
// fails without an error on long runs; the test holds it equal to that engine on random text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace quire {

// The publisher's bounds, in characters.
inline constexpr size_t kSliceCharsMax = 400'000;
inline constexpr size_t kRunCharsMax = 25'000;  // of spaces, or of anything else

// The slices of `text`, in order, none empty: cut every kSliceCharsMax characters, and within such
// a block wherever a run of blanks or of non-blanks would pass kRunCharsMax.
std::vector<std::string_view> slice_text(std::string_view text);

// Reads one slice piece by piece; together the pieces are the slice. Linear in its length.
class PieceReader {
 public:
  explicit PieceReader(std::string_view slice) : text_(slice) {}

  bool done() const { return at_ == text_.size(); }
  // The next piece, never empty. Must not be done.
  std::string_view next();

 private:
  struct Char;
  Char at(size_t position) const;
  size_t run_end(size_t position, unsigned classes) const;
  size_t contraction_end(size_t position) const;
  size_t lower_word_end(size_t position) const;
  size_t upper_word_end(size_t position) const;
  size_t word_end(size_t position, const Char& first) const;
  size_t number_end(size_t position) const;
  size_t symbols_end(size_t position) const;
  size_t blanks_end(size_t position) const;
  size_t piece_end(size_t position) const;

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace quire
