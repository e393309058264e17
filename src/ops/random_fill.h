// Fills an array with random values: out[r, c] = element (r, c) of `values`.
//
// The same bits on every backend (tensor/random_values.h). Rows of `out` follow each other without
// a gap. May be empty. Errors: none.
#pragma once

#include "ops/backend.h"
#include "tensor/random_values.h"

namespace quire::ops {

struct RandomFill {
  std::byte* out = nullptr;  // [n_rows, n_columns] elements of the kind, aligned to them
  RandomArray values;
};

void random_fill(Backend& backend, const RandomFill& args);

}  // namespace quire::ops
