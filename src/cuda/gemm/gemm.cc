#include "cuda/gemm/gemm.h"

#include "cuda/gemm/gemm_formats.h"

namespace quire::cuda {

WeightRef ref_of(const WeightMatrix& weight) {
  switch (weight.format) {
    case WeightFormat::bf16:
      return {.values = weight.bf16.data,
              .scales = nullptr,
              .value_stride = weight.bf16.stride[0] * 2,
              .scale_stride = 0};
    case WeightFormat::fp8_block128:
      return {.values = weight.fp8.data,
              .scales = weight.fp8_scale.data,
              .value_stride = weight.fp8.stride[0],
              .scale_stride = weight.fp8_scale.stride[0]};
    case WeightFormat::int4_group:
      return {.values = weight.int4.data,
              .scales = weight.int4_scale.data,
              .value_stride = weight.int4.stride[0],
              .scale_stride = weight.int4_scale.stride[0]};
  }
  CHECK(false);
  return {};
}

bool is_aligned(const WeightMatrix& weight) {
  const WeightRef ref = ref_of(weight);
  // Eight weights of a lane: 16, 8 or 4 bytes. 16 suits all.
  return reinterpret_cast<uintptr_t>(ref.values) % 16 == 0 && ref.value_stride % 16 == 0;
}

void launch_gemm(const Context& context, const GemmParams& params) {
  CHECK(params.n_groups > 0 && params.n_groups < 65536);  // grid.y
  switch (params.format) {
    case WeightFormat::bf16:
      return launch_gemm_bf16(context, params);
    case WeightFormat::fp8_block128:
      return launch_gemm_fp8(context, params);
    case WeightFormat::int4_group:
      return launch_gemm_int4(context, params);
  }
}

}  // namespace quire::cuda
