#include "ops/mla_prefill_attention.h"

namespace quire::ops {

void mla_prefill_attention(Backend& backend, const MlaPrefillAttention& args) {
  const int64_t n_tokens = args.out[0];
  const int64_t n_heads = args.out[1];
  CHECK(args.q_nope[0] == n_tokens && args.q_nope[1] == n_heads);
  CHECK(args.q_rope[0] == n_tokens && args.q_rope[1] == n_heads);
  CHECK(args.k_nope.shape == args.q_nope.shape && args.v.shape == args.out.shape);
  CHECK(args.k_rope[0] == n_tokens && args.k_rope[1] == args.q_rope[2]);
  CHECK(args.lse.data == nullptr || (args.lse[0] == n_tokens && args.lse[1] == n_heads));
  if (args.out.size() == 0) return;
  backend.mla_prefill_attention(args);
}

}  // namespace quire::ops
