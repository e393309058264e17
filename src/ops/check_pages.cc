#include "ops/check_pages.h"

namespace quire::ops {

void check_pages(Backend& backend, const CheckPages& args) {
  const StepShape& shape = args.inputs.shape;
  CHECK(shape.n_rows >= 1 && shape.table_width >= 1 && shape.tag_width == shape.table_width);
  CHECK(args.out[0] == shape.n_rows && args.lives[0] >= 1 && args.step[0] == 1);
  CHECK(args.places[0] == 0 || args.places[0] == shape.n_tokens);
  backend.check_pages(args);
}

}  // namespace quire::ops
