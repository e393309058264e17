#include "cuda/gemm/thin_formats.h"
#include "cuda/gemm/thin_kernel.cuh"

namespace quire::cuda {

void launch_thin_fp8(const Context& context, const ThinProduct& product, ThinTokens tokens) {
  launch_thin_format<WeightFormat::fp8_block128>(context, product, tokens);
}

}  // namespace quire::cuda
