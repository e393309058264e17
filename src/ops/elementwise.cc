#include "ops/elementwise.h"

namespace quire::ops {

void add(Backend& backend, const Add& args) {
  CHECK(args.a.shape == args.out.shape && args.b.shape == args.out.shape);
  if (args.out.size() == 0) return;
  backend.add(args);
}

void silu_mul(Backend& backend, const SiluMul& args) {
  CHECK(args.gate.shape == args.out.shape && args.up.shape == args.out.shape);
  if (args.out.size() == 0) return;
  backend.silu_mul(args);
}

}  // namespace quire::ops
