#include "cuda/gemm/wide_formats.h"
#include "cuda/gemm/wide_kernel.cuh"

namespace quire::cuda {

void launch_wide_bf16(const Context& context, const ThinProduct& product, const WidePlan& plan) {
  CHECK(plan.tokens == 64);
  launch_wide_tile<WeightFormat::bf16, 64>(context, product, plan.splits);
}

}  // namespace quire::cuda
