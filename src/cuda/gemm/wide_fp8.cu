#include "cuda/gemm/wide_formats.h"
#include "cuda/gemm/wide_kernel.cuh"

namespace quire::cuda {

void launch_wide_fp8(const Context& context, const ThinProduct& product, const WidePlan& plan) {
  launch_wide_format<WeightFormat::fp8_block128>(context, product, plan);
}

}  // namespace quire::cuda
