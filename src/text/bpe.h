// Byte-pair merging: one piece of text into the tokens of a vocabulary.
//
// A piece that is itself in the vocabulary is taken whole. Otherwise, starting from single bytes,
// the adjacent pair whose joined bytes have the lowest rank is joined, the leftmost first among
// equals, until no joined pair is in the vocabulary. O(n log n) for n bytes, whatever the bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/vocabulary.h"

namespace quire {

// Merges piece after piece, keeping its working memory between them. One thread at a time.
class Bpe {
 public:
  // `vocabulary` outlives this.
  explicit Bpe(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // Appends the tokens of `piece`, which is not empty.
  void append(std::string_view piece, std::vector<Token>* out);

 private:
  // A part of the piece, in a list linked by position; it begins where its index says.
  struct Part {
    int32_t end;   // past its last byte; the next part begins there
    int32_t prev;  // where the part before begins, or -1
    Token rank;
  };
  // A possible merge. It is stale, and skipped, when the parts no longer span [left, end).
  struct Merge {
    Token rank;
    int32_t left;
    int32_t middle;
    int32_t end;
    // The order of a max-heap: the lowest rank, then the leftmost, on top.
    bool operator<(const Merge& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  void merge_parts(std::string_view piece);
  void offer(std::string_view piece, int32_t left, int32_t middle, int32_t end);

  const Vocabulary& vocabulary_;
  std::vector<Part> parts_;  // [bytes of the piece], indexed by where a part begins
  std::vector<Merge> heap_;
};

}  // namespace quire
