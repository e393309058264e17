// Products whose rows lie at any address: slow, and right.
//
// What the thin and the wide kernel cannot copy in vectors of 16 bytes, in any format. A row's bits
// depend on the shape of the weights alone.
#pragma once

#include "cuda/gemm/thin.h"

namespace quire::cuda {

// `product` has one side.
void multiply_plain(const Context& context, const ThinProduct& product);

}  // namespace quire::cuda
