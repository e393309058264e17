// The instantiations of gemm_kernel.cuh, one a file so that they compile side by side.
#pragma once

#include "cuda/gemm/gemm.h"

namespace quire::cuda {

void launch_gemm_bf16(const Context& context, const GemmParams& params);
void launch_gemm_fp8(const Context& context, const GemmParams& params);
void launch_gemm_int4(const Context& context, const GemmParams& params);

}  // namespace quire::cuda
