#include "ops/kv_append.h"

namespace quire::ops {

void kv_append(Backend& backend, const KvAppend& args) {
  const int64_t n_tokens = args.latent[0];
  CHECK(is_well_formed(args.kv, args.layer) && args.places[0] == n_tokens);
  CHECK(args.rope[0] == n_tokens);
  CHECK(args.latent[1] == args.kv.layout->kv_lora_rank);
  CHECK(args.rope[1] == args.kv.layout->rope_dim);
  CHECK(args.fp8_bits_dropped >= 0 && args.fp8_bits_dropped <= 2);
  if (n_tokens == 0) return;
  backend.kv_append(args);
}

}  // namespace quire::ops
