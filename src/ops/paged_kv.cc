#include "ops/paged_kv.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire {

void TokenRows::count_row(int64_t n_tokens, int64_t end) {
  // Behind the first chunk a row of one token is a chunk, too.
  const bool is_lone = n_tokens == 1 && key_blocks == 0;
  row_tokens_max = std::max(row_tokens_max, n_tokens);
  if (is_lone) {
    ++n_lone;
  } else {
    key_blocks += div_up(end, kKeyBlock);
  }
}

bool is_well_formed(const PagedKv& kv, int32_t layer) {
  if (kv.pool == nullptr || kv.n_pages <= 0 || kv.layout == nullptr) return false;
  if (kv.layout->page_tokens != kPageTokens) return false;
  if (layer < 0 || static_cast<size_t>(layer) >= kv.layout->blocks.size()) return false;
  const KvBlock& block = kv.layout->blocks[static_cast<size_t>(layer)];
  return block.layer == layer && block.kind == KvBlockKind::mla;
}

bool is_well_formed(const PagedKv& kv, const TokenRows& tokens, int64_t n_tokens, int32_t layer) {
  if (!is_well_formed(kv, layer)) return false;
  const bool says_rows = tokens.row_begin[0] > 0;
  if (says_rows && (tokens.row_begin[0] != kv.table[0] + 1 || tokens.row_tokens_max <= 0)) {
    return false;
  }
  return kv.table.data != nullptr && tokens.row[0] == n_tokens && tokens.position[0] == n_tokens;
}

}  // namespace quire
