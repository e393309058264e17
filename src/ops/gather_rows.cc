#include "ops/gather_rows.h"

namespace quire::ops {

void gather_rows(Backend& backend, const GatherRows& args) {
  CHECK(args.out[0] == args.rows[0] && args.out[1] == args.x[1]);
  if (args.out.size() == 0) return;
  backend.gather_rows(args);
}

}  // namespace quire::ops
