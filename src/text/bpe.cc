#include "text/bpe.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void Bpe::append(std::string_view piece, std::vector<Token>* out) {
  CHECK(!piece.empty());
  if (const auto whole = vocabulary_.find(piece)) {
    out->push_back(*whole);
    return;
  }
  merge_parts(piece);
  const auto size = static_cast<int32_t>(piece.size());
  for (int32_t at = 0; at < size; at = parts_[static_cast<size_t>(at)].end) {
    out->push_back(parts_[static_cast<size_t>(at)].rank);
  }
}

void Bpe::offer(std::string_view piece, int32_t left, int32_t middle, int32_t end) {
  const auto begin = static_cast<size_t>(left);
  const auto rank = vocabulary_.find(piece.substr(begin, static_cast<size_t>(end) - begin));
  if (!rank) return;
  heap_.push_back({*rank, left, middle, end});
  std::push_heap(heap_.begin(), heap_.end());
}

void Bpe::merge_parts(std::string_view piece) {
  CHECK(piece.size() < (size_t{1} << 30));
  const auto size = static_cast<int32_t>(piece.size());
  parts_.resize(piece.size());
  heap_.clear();
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = vocabulary_.find(piece.substr(static_cast<size_t>(i), 1));
    parts_[static_cast<size_t>(i)] = {i + 1, i - 1, byte.value_or(-1)};
    if (i + 1 < size) offer(piece, i, i + 1, i + 2);
  }
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Merge merge = heap_.back();
    heap_.pop_back();
    Part& left = parts_[static_cast<size_t>(merge.left)];
    if (left.end != merge.middle) continue;
    Part& right = parts_[static_cast<size_t>(merge.middle)];
    if (right.end != merge.end) continue;
    left.end = merge.end;
    left.rank = merge.rank;
    right.end = -1;  // no longer a part
    if (left.prev >= 0) offer(piece, left.prev, merge.left, merge.end);
    if (merge.end == size) continue;
    Part& next = parts_[static_cast<size_t>(merge.end)];
    next.prev = merge.left;
    offer(piece, merge.left, merge.end, next.end);
  }
}

}  // namespace quire
