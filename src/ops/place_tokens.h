// Looks up where the tokens of a step are stored: once for the stores of all its layers.
//
//   out[t] = place_of(t, table[row[t], position[t] / 64], position[t] % 64)
//
// It is no_place, and the token is stored nowhere, when the table has no such entry, or names no
// page of the pool there; and, where stores are guarded (check W of docs/integrity.md), when that
// is not a page that the row may write by its tag (is_writable). Under a guard each token without a
// place is counted in the words of its row, if the table has that.
//
// The inputs may be of any bits. n_tokens may be 0.
// Everything is in the backend's memory; nothing overlaps. Errors: none.
#pragma once

#include "format/page_check.h"
#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire {

// What stores into the cache are checked with.
struct WriteGuard {
  View<const PageTag, 2> tags;    // [n_rows, pages_max] as the table
  View<const PageLife, 1> lives;  // [n_pages]
  View<PageCheck, 1> rows;        // [n_rows] `dropped` and `dropped_page`
};

namespace ops {

struct PlaceTokens {
  View<TokenPlace, 1> out;  // [n_tokens]
  PagedKv kv;               // table and n_pages alone are used
  TokenRows tokens;         // row and position
  WriteGuard guard = {};    // empty: stores are not checked
};

void place_tokens(Backend& backend, const PlaceTokens& args);

}  // namespace ops

}  // namespace quire
