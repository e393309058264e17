// PagedKv: what ops need to know of the KV cache in one step: the pool, and who owns which page;
// and TokenPlace: where a token of the step is stored in it.
//
// Logical page k of a row holds its tokens [64 k, 64 k + 64). The table names physical pages; the
// pool is page-major (format/kv_page.h). Ops read through the table and store at places, and change
// neither. Offsets are 64-bit: a pool passes 2^31 elements.
#pragma once

#include "format/kv_page.h"
#include "tensor/view.h"

namespace quire {

struct PagedKv {
  std::byte* pool = nullptr;  // [n_pages, layout->page_bytes]
  int64_t n_pages = 0;
  const KvPageLayout* layout = nullptr;  // host; outlives the step
  View<const int32_t, 2> table;  // [n_rows, pages_max] physical pages, in logical order; -1 unused
};

// Where a token of a step is stored, in every layer: ops/place_tokens.h makes it, once a step. The
// mark binds the words before it to the token, so that a store that finds a place damaged, or
// another token's, is not made.
struct alignas(16) TokenPlace {
  int32_t page = -1;  // physical; -1: the token is not stored
  int32_t slot = 0;   // of the page, below kPageTokens
  uint64_t mark = 0;
  friend constexpr bool operator==(const TokenPlace&, const TokenPlace&) = default;
};
static_assert(sizeof(TokenPlace) == 16);

// Tokens below 2^24, pages and slots have marks of their own (products with an odd number are
// bijective), and zeros are none.
constexpr TokenPlace place_of(int64_t token, int32_t page, int32_t slot) {
  static_assert(kPageTokens <= 256);
  const uint64_t words = static_cast<uint64_t>(token) << 40 |
                         uint64_t{static_cast<uint32_t>(page)} << 8 | static_cast<uint64_t>(slot);
  return {page, slot, words * 0x9e3779b97f4a7c15U + 1};
}
constexpr TokenPlace no_place(int64_t token) { return place_of(token, -1, 0); }
constexpr bool is_stored(const TokenPlace& place, int64_t token) {
  return place.page >= 0 && place.slot >= 0 && place.slot < kPageTokens &&
         place.mark == place_of(token, place.page, place.slot).mark;
}

// The place of a token by the table of a pool of `n_pages`. Row and position may be of any bits: it
// is no_place when the table has no such entry, or names no page of the pool there.
constexpr TokenPlace place_by_table(const View<const int32_t, 2>& table, int64_t n_pages,
                                    int64_t token, int32_t row, int32_t position) {
  const int32_t logical = position / kPageTokens;
  if (row < 0 || row >= table[0] || position < 0 || logical >= table[1]) return no_place(token);
  const int32_t page = table(row, logical);
  if (page < 0 || page >= n_pages) return no_place(token);
  return place_of(token, page, position % kPageTokens);
}

// Keys of a sequence are attended by head in blocks of so many (ops/mla_prefill_attention.h).
inline constexpr int64_t kKeyBlock = 128;

// The rows of a step, flattened to tokens. Tokens of a row are consecutive, in order of position.
struct TokenRows {
  View<const int32_t, 1> row;       // [n_tokens] row of the page table
  View<const int32_t, 1> position;  // [n_tokens] absolute position in its sequence, from 0
  // Where each row's tokens begin, and n_tokens last: [n_rows + 1] of the page table, or empty when
  // the caller does not say. A backend may use it to share work between the tokens of a row.
  View<const int32_t, 1> row_begin = {};
  // Known on the host; 0 when the caller does not say.
  int64_t row_tokens_max = 0;  // no row has more tokens
  int64_t n_lone = 0;          // the first rows have one token each: so many rows and tokens
  // Of the rows behind them: ceil(keys / kKeyBlock), added up, of all keys that each has cached.
  int64_t key_blocks = 0;

  // The lone rows as a step of their own.
  TokenRows lone() const {
    return {.row = row.rows(0, n_lone), .position = position.rows(0, n_lone), .row_tokens_max = 1};
  }
  // Counts one more row in what is known on the host: its tokens, the last at position end - 1.
  void count_row(int64_t n_tokens, int64_t end);
};

// True when the pool and its layout fit each other and `layer`.
bool is_well_formed(const PagedKv& kv, int32_t layer);
// And so do the table and the tokens of a step. The contents of the table are the engine's business
// and are not looked at.
bool is_well_formed(const PagedKv& kv, const TokenRows& tokens, int64_t n_tokens, int32_t layer);

}  // namespace quire
