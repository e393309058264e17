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
  CHECK(!args.table.empty());
  const ExpertWeights& first = args.table[0];
  for (const ExpertWeights& expert : args.table) {
    CHECK(is_well_formed(expert.gate) && is_well_formed(expert.up) && is_well_formed(expert.down));
    CHECK(expert.gate.format == first.gate.format && expert.gate.n_out == first.gate.n_out);
    CHECK(expert.up.format == first.gate.format && expert.down.format == first.gate.format);
    CHECK(expert.gate.n_in == args.x[1] && expert.up.n_in == args.x[1]);
    CHECK(expert.up.n_out == expert.gate.n_out && expert.down.n_in == expert.gate.n_out);
    CHECK(expert.down.n_out == args.out[1]);
  }
  CHECK(args.activation == Activation::bf16 || first.gate.format == WeightFormat::fp8_block128);
  if (args.x[0] == 0) return;
  backend.moe_experts(args);
}

}  // namespace quire::ops
