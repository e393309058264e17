// Absorbed attention for steps of few tokens a row: every token reads its pages for itself.
//
// For the shape of Kimi and GLM (512 latent and 64 rope values); attention/ has any other.
#pragma once

#include "cuda/common/context.h"
#include "ops/mla_attention.h"

namespace quire::cuda {

// Whether mla_decode can: the shape, and the alignment of what it is given.
bool mla_decode_takes(const ops::MlaAttention& args);
void mla_decode(const Context& context, const ops::MlaAttention& args);

}  // namespace quire::cuda
