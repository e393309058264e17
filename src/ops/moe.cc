#include "ops/moe.h"

namespace quire::ops {

MoeExperts MoeExperts::rows(int64_t begin, int64_t n) const {
  MoeExperts part = *this;
  part.out = out.rows(begin, n);
  part.experts = experts.rows(begin, n);
  part.weights = weights.rows(begin, n);
  part.x = x.rows(begin, n);
  part.scores = scores.rows(begin, n);
  return part;
}

void moe_experts(Backend& backend, const MoeExperts& args) {
  CHECK(args.bank != nullptr);
  CHECK(args.out.shape == args.x.shape && args.x[1] == args.bank->shape().hidden);
  CHECK(args.experts.shape == args.weights.shape && args.experts[0] == args.x[0]);
  CHECK(args.scores[0] == args.x[0] && args.scores[1] == args.bank->shape().n_experts);
  CHECK(args.bias[0] == args.scores[1]);
  CHECK(args.experts[1] > 0 && args.experts[1] <= args.scores[1]);
  if (args.x[0] == 0) return;
  backend.moe_experts(args);
}

}  // namespace quire::ops
