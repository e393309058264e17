#include "cuda/gemm/gemm_formats.h"
#include "cuda/gemm/gemm_kernel.cuh"

namespace quire::cuda {

void launch_gemm_fp8(const Context& context, const GemmParams& params) {
  launch_format<WeightFormat::fp8_block128>(context, params);
}

}  // namespace quire::cuda
