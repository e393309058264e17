#include "ops/mla_prefill_attention.h"

namespace quire::ops {

void mla_prefill_attention(Backend& backend, const MlaPrefillAttention& args) {
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  CHECK(is_well_formed(args.kv, args.tokens, n_tokens, args.layer));
  CHECK(args.q_nope[0] == n_tokens && args.q_nope[1] == n_heads);
  CHECK(args.q_rope[0] == n_tokens && args.q_rope[1] == n_heads);
  CHECK(args.q_rope[2] == args.kv.layout->rope_dim);
  CHECK(args.w_uk[0] == n_heads && args.w_uk[1] == args.q_nope[2]);
  CHECK(args.w_uv[0] == n_heads && args.w_uv[1] == args.out[2]);
  CHECK(args.w_uk[2] == args.kv.layout->kv_lora_rank && args.w_uv[2] == args.w_uk[2]);
  CHECK(args.scale > 0);
  if (args.out.size() == 0 || args.tokens.key_blocks == 0) return;
  CHECK(args.tokens.row_begin.data != nullptr);
  backend.mla_prefill_attention(args);
}

}  // namespace quire::ops
