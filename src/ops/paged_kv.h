// PagedKv: what ops need to know of the KV cache in one step: the pool, and who owns which page.
//
// Logical page k of a row holds its tokens [64 k, 64 k + 64). The table names physical pages; the
// pool is page-major (format/kv_page.h). Ops read and write through it, and change no table.
// Offsets are 64-bit: a pool passes 2^31 elements.
#pragma once

#include "format/kv_page.h"
#include "format/page_check.h"
#include "tensor/view.h"

namespace quire {

// What a store into the cache is checked with (check W): the page that it goes to, which the table
// names, must be one that the row may write (is_writable). One that is not is dropped, and counted
// in the row's words.
struct WriteGuard {
  View<const PageTag, 2> tags;    // [n_rows, pages_max] as the table
  View<const PageLife, 1> lives;  // [n_pages]
  View<PageCheck, 1> rows;        // [n_rows] `dropped` and `dropped_page`
};

struct PagedKv {
  std::byte* pool = nullptr;  // [n_pages, layout->page_bytes]
  int64_t n_pages = 0;
  const KvPageLayout* layout = nullptr;  // host; outlives the step
  View<const int32_t, 2> table;  // [n_rows, pages_max] physical pages, in logical order; -1 unused
  WriteGuard guard = {};         // empty: stores are not checked
};

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

// True when the pool, its layout, the table and the tokens of a step fit each other and `layer`.
// The contents of the table are the engine's business and are not looked at.
bool is_well_formed(const PagedKv& kv, const TokenRows& tokens, int64_t n_tokens, int32_t layer);

}  // namespace quire
