// The order in which the prompt kernels keep the inputs of a product (k), so that 16 bytes of
// packed weights (packed_layout.h) are whole operands of tensor cores.
//
// Of each 32 inputs, taken as 16 words of two, word w = 4 t + i lies at 4 i + t: the k of two
// m64nNk16 products one after the other, of which lane t holds inputs 8 t + [0, 8) of its rows.
#pragma once

#include "cuda/common/context.h"
#include "tensor/view.h"

namespace quire::cuda {

// Rows are whole steps of this many inputs; what is past the end is zero.
inline constexpr int64_t kInputStep = 128;

// to[row, ...] = x[row, ...] in that order; `to` is as wide as x or wider, a multiple of
// kInputStep.
void order_inputs(const Context& context, const View<Bf16, 2>& to, const View<const Bf16, 2>& x);

}  // namespace quire::cuda
