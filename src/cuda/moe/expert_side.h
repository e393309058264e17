// ExpertSide: one kind of expert in one of the two products of a mixture, as kernels take it.
#pragma once

#include <cstdint>

#include "cuda/moe/packed_layout.h"
#include "tensor/dtype.h"

namespace quire::cuda {

// Rows begin at multiples of 16 bytes, and n_in is a multiple of 8.
struct ExpertInput {
  const Bf16* rows;
  int64_t stride;        // elements between rows
  const float* scales;   // [rows, ceil(n_in / 128)] of a quantised input, or null
  int64_t scale_stride;  // elements between rows of scales
  int n_in;
};

// The routed experts, or the shared one. Rows of outputs are pairs, or tokens for the shared one.
struct ExpertSide {
  PackedMatrix weights;  // data null: there is no shared expert
  ExpertInput input;
  int n_out;           // of one of gate and up; of down
  int64_t out_stride;  // elements between rows of what follows
  // gate and up: bf16(silu(gate) * up), zero from n_out to out_stride; down: the products, rounded.
  Bf16* out;
};

}  // namespace quire::cuda
