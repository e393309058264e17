#include "ops/embed.h"

namespace quire::ops {

void embed(Backend& backend, const Embed& args) {
  CHECK(args.out[0] == args.ids[0] && args.out[1] == args.table[1] && args.table[0] > 0);
  if (args.out.size() == 0) return;
  backend.embed(args);
}

}  // namespace quire::ops
