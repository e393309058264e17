#include "ops/random_fill.h"

namespace quire::ops {

void random_fill(Backend& backend, const RandomFill& args) {
  const RandomArray& values = args.values;
  CHECK(values.n_rows >= 0 && values.n_columns >= 0 && values.first >= 0);
  CHECK(values.stride >= values.n_columns);
  if (values.bytes() == 0) return;
  CHECK(args.out != nullptr);
  backend.random_fill(args);
}

}  // namespace quire::ops
