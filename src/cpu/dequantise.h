// Stored numbers to float32: rows of a weight in any format.
#pragma once

#include "ops/weight_matrix.h"

namespace quire::cpu {

// out[i] = weight[row, i], exactly as the format defines it (one float32 product where it has a
// scale).
void dequantise_row(const WeightMatrix& weight, int64_t row, float* out);

}  // namespace quire::cpu
