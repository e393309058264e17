#include "cuda/gemm/gemm_formats.h"
#include "cuda/gemm/gemm_kernel.cuh"

namespace quire::cuda {

void launch_gemm_bf16(const Context& context, const GemmParams& params) {
  launch_format<WeightFormat::bf16>(context, params);
}

}  // namespace quire::cuda
