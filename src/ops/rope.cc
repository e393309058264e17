#include "ops/rope.h"

namespace quire::ops {

void rope(Backend& backend, const Rope& args) {
  CHECK(args.x[2] % 2 == 0 && args.x[0] == args.positions[0]);
  CHECK(args.cos[1] == args.x[2] / 2 && args.cos.shape == args.sin.shape);
  if (args.x.size() == 0) return;
  backend.rope(args);
}

}  // namespace quire::ops
