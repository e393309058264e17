#include <algorithm>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

// Whether a row may write the page of a place; else it is noted.
bool may_store(const WriteGuard& guard, const TokenPlace& place, int32_t row, int32_t position) {
  if (guard.tags.data == nullptr) return true;
  if (place.page >= 0 &&
      is_writable(guard.lives(place.page), guard.tags(row, position / kPageTokens))) {
    return true;
  }
  if (row < 0 || row >= guard.rows[0]) return false;
  PageCheck& words = guard.rows(row);
  ++words.dropped;
  words.dropped_page = std::max({words.dropped_page, place.page, 0});
  return false;
}

}  // namespace

void place_tokens(const ops::PlaceTokens& args) {
  for (int64_t t = 0; t < args.out[0]; ++t) {
    const int32_t row = args.tokens.row(t);
    const int32_t position = args.tokens.position(t);
    const TokenPlace place = place_by_table(args.kv.table, args.kv.n_pages, t, row, position);
    args.out(t) = may_store(args.guard, place, row, position) ? place : no_place(t);
  }
}

}  // namespace quire::cpu
