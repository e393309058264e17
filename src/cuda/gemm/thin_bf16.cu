#include "cuda/gemm/thin_formats.h"
#include "cuda/gemm/thin_kernel.cuh"

namespace quire::cuda {

void launch_thin_bf16(const Context& context, const ThinProduct& product) {
  launch_thin_format<WeightFormat::bf16>(context, product);
}

}  // namespace quire::cuda
