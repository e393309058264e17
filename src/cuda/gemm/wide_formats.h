// The instantiations of wide_kernel.cuh, one a file so that they compile side by side.
#pragma once

#include "cuda/gemm/wide.h"
#include "cuda/tune/wide_plan.h"

namespace quire::cuda {

// Of 64 tokens a tile.
void launch_wide_bf16(const Context& context, const ThinProduct& product, const WidePlan& plan);
void launch_wide_fp8(const Context& context, const ThinProduct& product, const WidePlan& plan);
void launch_wide_int4(const Context& context, const ThinProduct& product, const WidePlan& plan);

}  // namespace quire::cuda
