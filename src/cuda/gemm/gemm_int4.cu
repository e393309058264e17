#include "cuda/gemm/gemm_formats.h"
#include "cuda/gemm/gemm_kernel.cuh"

namespace quire::cuda {

void launch_gemm_int4(const Context& context, const GemmParams& params) {
  launch_format<WeightFormat::int4_group>(context, params);
}

}  // namespace quire::cuda
