#include "cuda/gemm/thin_formats.h"
#include "cuda/gemm/thin_kernel.cuh"

namespace quire::cuda {

void launch_thin_fp8(const Context& context, const ThinProduct& product) {
  launch_thin_format<WeightFormat::fp8_block128>(context, product);
}

}  // namespace quire::cuda
