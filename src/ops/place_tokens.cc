#include "ops/place_tokens.h"

namespace quire::ops {

void place_tokens(Backend& backend, const PlaceTokens& args) {
  const int64_t n_tokens = args.out[0];
  const WriteGuard& guard = args.guard;
  CHECK(args.kv.table.data != nullptr && args.kv.n_pages > 0);
  CHECK(args.tokens.row[0] == n_tokens && args.tokens.position[0] == n_tokens);
  CHECK(n_tokens < int64_t{1} << 24);  // place_of
  CHECK(guard.tags.data == nullptr ||
        (guard.tags.shape == args.kv.table.shape && guard.lives[0] == args.kv.n_pages &&
         guard.rows[0] == args.kv.table[0]));
  if (n_tokens == 0) return;
  backend.place_tokens(args);
}

}  // namespace quire::ops
