// Products of many tokens, and of any number where a row's bits must not depend on its batch: the
// weights of a tile stream through shared memory, quantised ones are converted in registers on
// their way to the tensor cores (wide_kernel.cuh). Up to two matrices with the same input.
//
// A row's bits depend on the shape of the weights and on the plan, never on where the row stands:
// with one plan for every batch (`WideTiles::any`) the product is batch-invariant.
#pragma once

#include "cuda/common/context.h"
#include "cuda/gemm/thin.h"

namespace quire::cuda {

// How a product is cut (tune/wide_plan.h). BF16 has one way.
enum class WideTiles : uint8_t {
  by_count,  // the fastest for n_tokens
  any,       // one for all
};

// True when the copy engine can read weights and x as they lie, and scales come in pairs.
bool is_wide(const ThinProduct& product);
void multiply_wide(const Context& context, const ThinProduct& product, WideTiles tiles);

}  // namespace quire::cuda
