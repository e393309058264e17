#include "cuda/gemm/wide_formats.h"
#include "cuda/gemm/wide_kernel.cuh"

namespace quire::cuda {

void launch_wide_int4(const Context& context, const ThinProduct& product, const WidePlan& plan) {
  launch_wide_format<WeightFormat::int4_group>(context, product, plan);
}

}  // namespace quire::cuda
