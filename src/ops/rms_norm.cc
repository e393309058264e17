#include "ops/rms_norm.h"

namespace quire::ops {

void rms_norm(Backend& backend, const RmsNorm& args) {
  CHECK(args.x.shape == args.out.shape && args.weight[0] == args.out[1] && args.out[1] > 0);
  CHECK(args.eps > 0);
  if (args.out[0] == 0) return;
  backend.rms_norm(args);
}

void add_rms_norm(Backend& backend, const AddRmsNorm& args) {
  CHECK(args.h.shape == args.out.shape && args.delta.shape == args.out.shape);
  CHECK(args.weight[0] == args.out[1] && args.out[1] > 0);
  CHECK(args.eps > 0);
  if (args.out[0] == 0) return;
  backend.add_rms_norm(args);
}

}  // namespace quire::ops
