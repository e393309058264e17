#include "ops/append_latent.h"

namespace quire::ops {

void append_latent(Backend& backend, const AppendLatent& args) {
  const int64_t n_tokens = args.kv_a[0];
  CHECK(is_well_formed(args.kv, args.layer));
  CHECK(args.places[0] == n_tokens && args.positions[0] == n_tokens);
  CHECK(args.kv_a[1] == args.kv.layout->values());
  CHECK(args.kv_a_norm[0] == args.kv.layout->kv_lora_rank);
  CHECK(args.q_a.data == nullptr ||
        (args.q_a[0] == n_tokens && args.q_a[1] == args.q_a_norm[0] && args.q_a[1] > 0));
  CHECK(args.cos[1] == args.kv.layout->rope_dim / 2 && args.cos.shape == args.sin.shape);
  CHECK(args.eps > 0);
  CHECK(args.fp8_bits_dropped >= 0 && args.fp8_bits_dropped <= 2);
  if (n_tokens == 0) return;
  backend.append_latent(args);
}

}  // namespace quire::ops
