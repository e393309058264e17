#include "cuda/gemm/thin.h"

#include "cuda/gemm/thin_formats.h"
#include "cuda/tune/thin_plan.h"

namespace quire::cuda {

namespace {

bool is_at_16(const void* p, int64_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride_bytes % 16 == 0;
}

}  // namespace

bool is_thin(const ThinProduct& p) {
  for (const ThinSide& side : std::span(p.sides).first(static_cast<size_t>(p.n_sides))) {
    if (!is_at_16(side.weight.values, side.weight.value_stride)) return false;
    // Scales of groups of 32 are read two at a time.
    if (p.format == WeightFormat::int4_group && p.group == 32 &&
        (reinterpret_cast<uintptr_t>(side.weight.scales) % 4 != 0 ||
         side.weight.scale_stride % 2 != 0 || p.n_in % 64 != 0)) {
      return false;
    }
  }
  return is_at_16(p.x, p.x_stride * 2);
}

void multiply_thin(const Context& context, const ThinProduct& product) {
  CHECK(is_thin(product) && product.n_tokens <= kThinTokensMax);
  switch (product.format) {
    case WeightFormat::bf16:
      return launch_thin_bf16(context, product);
    case WeightFormat::fp8_block128:
      return launch_thin_fp8(context, product);
    case WeightFormat::int4_group:
      return launch_thin_int4(context, product);
  }
}

}  // namespace quire::cuda
