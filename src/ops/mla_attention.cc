#include "ops/mla_attention.h"

namespace quire::ops {

void absorb_query(Backend& backend, const AbsorbQuery& args) {
  CHECK(args.out[0] == args.q_nope[0] && args.out[1] == args.q_nope[1]);
  CHECK(args.w_uk[0] == args.q_nope[1] && args.w_uk[1] == args.q_nope[2]);
  CHECK(args.w_uk[2] == args.out[2]);
  if (args.q_rope.data != nullptr) {
    CHECK(args.q_rope[0] == args.out[0] && args.q_rope[1] == args.out[1]);
    CHECK(args.positions[0] == args.out[0] && args.q_rope[2] % 2 == 0);
    CHECK(args.cos[1] == args.q_rope[2] / 2 && args.cos.shape == args.sin.shape);
  }
  if (args.out.size() == 0) return;
  backend.absorb_query(args);
}

void mla_attention(Backend& backend, const MlaAttention& args) {
  const int64_t n_tokens = args.out[0];
  CHECK(is_well_formed(args.kv, args.tokens, n_tokens, args.layer));
  CHECK(args.q_latent.shape == args.out.shape);
  CHECK(args.q_rope[0] == n_tokens && args.q_rope[1] == args.out[1]);
  CHECK(args.out[2] == args.kv.layout->kv_lora_rank);
  CHECK(args.q_rope[2] == args.kv.layout->rope_dim);
  CHECK(args.scale > 0);
  if (args.out.size() == 0) return;
  backend.mla_attention(args);
}

void expand_value(Backend& backend, const ExpandValue& args) {
  CHECK(args.out[0] == args.x[0] && args.out[1] == args.x[1]);
  CHECK(args.w_uv[0] == args.x[1] && args.w_uv[1] == args.out[2] && args.w_uv[2] == args.x[2]);
  if (args.out.size() == 0) return;
  backend.expand_value(args);
}

}  // namespace quire::ops
