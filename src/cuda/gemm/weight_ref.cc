#include "cuda/gemm/weight_ref.h"

#include "base/check.h"

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

}  // namespace quire::cuda
