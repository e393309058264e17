#include "ops/moe.h"

namespace quire::ops {

void moe_route(Backend& backend, const MoeRoute& args) {
  CHECK(args.experts.shape == args.weights.shape && args.experts[0] == args.scores[0]);
  CHECK(args.bias[0] == args.scores[1]);
  CHECK(args.experts[1] > 0 && args.experts[1] <= args.scores[1]);
  if (args.experts[0] == 0) return;
  backend.moe_route(args);
}

void moe_experts(Backend& backend, const MoeExperts& args) {
  CHECK(args.out.shape == args.x.shape);
  CHECK(args.experts.shape == args.weights.shape && args.experts[0] == args.x[0]);
  CHECK(args.bank != nullptr);
  CHECK(args.x[1] == args.bank->shape().hidden);
  if (args.x[0] == 0) return;
  backend.moe_experts(args);
}

}  // namespace quire::ops
