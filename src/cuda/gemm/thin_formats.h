// The instantiations of thin_kernel.cuh, one a file so that they compile side by side.
#pragma once

#include "cuda/gemm/thin.h"

namespace quire::cuda {

void launch_thin_bf16(const Context& context, const ThinProduct& product);
void launch_thin_fp8(const Context& context, const ThinProduct& product);
void launch_thin_int4(const Context& context, const ThinProduct& product);

}  // namespace quire::cuda
