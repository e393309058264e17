// WeightRef: a WeightMatrix as kernels take it; the format and the shape are the launch's.
#pragma once

#include <cstdint>

#include "ops/weight_matrix.h"

namespace quire::cuda {

struct WeightRef {
  const void* values;    // [n_out, n_in], packed as the format says
  const void* scales;    // float32 or Bf16; null for bf16
  int64_t value_stride;  // bytes between rows
  int64_t scale_stride;  // elements between rows of scales
};

WeightRef ref_of(const WeightMatrix& weight);

}  // namespace quire::cuda
