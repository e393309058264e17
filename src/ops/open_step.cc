#include "ops/open_step.h"

namespace quire::ops {

void open_step(Backend& backend, const OpenStep& args) {
  const StepShape& shape = args.inputs.shape;
  CHECK(args.out[0] == 1 && args.state[0] == kStepStateWords);
  CHECK(shape.n_rows >= 1 && shape.n_tokens >= shape.n_rows && shape.n_logits <= shape.n_tokens);
  CHECK(args.lives[0] == 0 || shape.tag_width == shape.table_width);
  CHECK(shape.table_width >= 1 && args.recent.size() > 0);
  CHECK(reinterpret_cast<uintptr_t>(args.inputs.header.data) % alignof(SlotHeader) == 0);
  backend.open_step(args);
}

}  // namespace quire::ops
