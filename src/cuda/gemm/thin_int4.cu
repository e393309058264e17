#include "cuda/gemm/thin_formats.h"
#include "cuda/gemm/thin_kernel.cuh"

namespace quire::cuda {

void launch_thin_int4(const Context& context, const ThinProduct& product) {
  launch_thin_format<WeightFormat::int4_group>(context, product);
}

}  // namespace quire::cuda
