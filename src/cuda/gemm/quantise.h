// What Activation::fp8_group128 makes of x: e4m3 by token and 128 values, kept as bfloat16 (exact),
// with its scales.
#pragma once

#include <cstdint>

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

struct Quantised {
  Bf16* values;          // [n_rows, n_in]
  float* scales;         // [n_rows, ceil(n_in / 128)]
  int64_t scale_stride;  // ceil(n_in / 128)
};

int64_t quantised_bytes(int64_t n_rows, int64_t n_in);  // of workspace
// Takes its memory from the workspace, whose op has begun.
Quantised quantise(const Context& context, const View<const Bf16, 2>& x);

}  // namespace quire::cuda
