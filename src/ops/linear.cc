#include "ops/linear.h"

namespace quire::ops {

void linear(Backend& backend, const Linear& args) {
  const bool to_bf16 = args.out.data != nullptr;
  CHECK(to_bf16 != (args.out_f32.data != nullptr));
  const auto& shape = to_bf16 ? args.out.shape : args.out_f32.shape;
  CHECK(is_well_formed(args.weight));
  CHECK(shape[0] == args.x[0] && shape[1] == args.weight.n_out && args.x[1] == args.weight.n_in);
  CHECK(args.activation == Activation::bf16 || args.weight.format == WeightFormat::fp8_block128);
  if (args.x[0] == 0) return;
  backend.linear(args);
}

void linear_pair(Backend& backend, const LinearPair& args) {
  for (const LinearPair::Side* side : {&args.first, &args.second}) {
    CHECK(is_well_formed(side->weight));
    CHECK(side->out[0] == args.x[0] && side->out[1] == side->weight.n_out);
    CHECK(args.x[1] == side->weight.n_in);
    CHECK(side->activation == Activation::bf16 ||
          side->weight.format == WeightFormat::fp8_block128);
  }
  if (args.x[0] == 0) return;
  backend.linear_pair(args);
}

}  // namespace quire::ops
