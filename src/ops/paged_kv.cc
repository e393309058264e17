#include "ops/paged_kv.h"

namespace quire {

bool is_well_formed(const PagedKv& kv, const TokenRows& tokens, int64_t n_tokens, int32_t layer) {
  if (kv.pool == nullptr || kv.n_pages <= 0 || kv.layout == nullptr) return false;
  if (kv.layout->page_tokens != kPageTokens) return false;
  if (layer < 0 || static_cast<size_t>(layer) >= kv.layout->blocks.size()) return false;
  const KvBlock& block = kv.layout->blocks[static_cast<size_t>(layer)];
  if (block.layer != layer || block.kind != KvBlockKind::mla) return false;
  const bool says_rows = tokens.row_begin[0] > 0;
  if (says_rows && (tokens.row_begin[0] != kv.table[0] + 1 || tokens.row_tokens_max <= 0)) {
    return false;
  }
  return kv.table.data != nullptr && tokens.row[0] == n_tokens && tokens.position[0] == n_tokens;
}

}  // namespace quire
