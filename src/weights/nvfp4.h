// NVFP4, decoded: what the bytes of modelopt's four-bit checkpoints mean (docs/formats/weights.md).
//
// No backend multiplies with it: Hopper has no instruction for it, and its rows are decoded to BF16
// while they are loaded. Not the way back: that is compress/group_fit.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace quire {

// What the lower three bits of a code mean; bit 3 is the sign.
inline constexpr std::array<float, 8> kE2m1Values = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

// One row as a file has it: byte b holds input 2b in its low nibble and 2b + 1 in its high one.
struct Nvfp4Row {
  const std::byte* packed = nullptr;  // [n_in / 2]
  const std::byte* scales = nullptr;  // [n_in / 16] e4m3
  float tensor_scale = 1;
};

// out[i] = bf16(e2m1[i] * (e4m3[i / 16] * tensor_scale)), products in float32. out.size() is the
// row's inputs, a multiple of 16.
void decode_nvfp4_row(const Nvfp4Row& row, std::span<Bf16> out);

}  // namespace quire
