// linear, and the two products by head around absorbed attention.
#include "cuda/common/cuda_must.h"
#include "cuda/gemm/blas.h"
#include "cuda/gemm/gemm.h"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

bool rows_at_16(const View<const Bf16, 2>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride[0] % 8 == 0;
}

int64_t out_stride(const ops::Linear& args) {
  return args.out.data != nullptr ? args.out.stride[0] : args.out_f32.stride[0];
}

BlasAnswer multiply_bf16(const Context& context, const ops::Linear& args) {
  const bool is_bf16 = args.out.data != nullptr;
  void* out = args.out_f32.data;
  if (is_bf16) out = args.out.data;
  return context.blas->multiply({.weight = args.weight.bf16.data,
                                 .order = WeightOrder::out_in,
                                 .weight_stride = args.weight.bf16.stride[0],
                                 .x = args.x.data,
                                 .x_stride = args.x.stride[0],
                                 .out = out,
                                 .out_dtype = is_bf16 ? Dtype::bf16 : Dtype::f32,
                                 .out_stride = out_stride(args),
                                 .n_tokens = args.x[0],
                                 .n_out = args.weight.n_out,
                                 .n_in = args.weight.n_in});
}

}  // namespace

void linear(const Context& context, const ops::Linear& args) {
  if (args.weight.format == WeightFormat::bf16 &&
      multiply_bf16(context, args) == BlasAnswer::done) {
    return;
  }
  GemmParams p{.sides = {{.weight = ref_of(args.weight),
                          .table = nullptr,
                          .out = args.out.data,
                          .out_f32 = args.out_f32.data,
                          .out_stride = out_stride(args)}},
               .n_sides = 1,
               .format = args.weight.format,
               .group = args.weight.group,
               .n_out = args.weight.n_out,
               .n_in = args.weight.n_in,
               .x = args.x.data,
               .x_stride = args.x.stride[0],
               .is_aligned = is_aligned(args.weight) && rows_at_16(args.x),
               .n_groups = 1,
               .n_rows = args.x[0],
               .x_divisor = 1};
  if (args.activation == Activation::fp8_group128) {
    context.workspace->begin(quantised_bytes(args.x[0], args.x[1]));
    const Quantised x = quantise(context, args.x);
    p.x = x.values;
    p.x_stride = args.x[1];
    p.x_scale = x.scales;
    p.x_scale_stride = x.scale_stride;
    p.is_aligned = is_aligned(args.weight) && args.x[1] % 8 == 0;
  }
  launch_gemm(context, p);
}

void absorb_query(const Context& context, const ops::AbsorbQuery& args) {
  const BlasAnswer answer = context.blas->multiply({.weight = args.w_uk.data,
                                                    .order = WeightOrder::in_out,
                                                    .weight_stride = args.w_uk.stride[1],
                                                    .weight_batch = args.w_uk.stride[0],
                                                    .x = args.q_nope.data,
                                                    .x_stride = args.q_nope.stride[0],
                                                    .x_batch = args.q_nope.stride[1],
                                                    .out = args.out.data,
                                                    .out_stride = args.out.stride[0],
                                                    .out_batch = args.out.stride[1],
                                                    .n_tokens = args.out[0],
                                                    .n_out = args.out[2],
                                                    .n_in = args.q_nope[2],
                                                    .n_batch = args.out[1]});
  CUDA_MUST(answer == BlasAnswer::done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
}

void expand_value(const Context& context, const ops::ExpandValue& args) {
  const BlasAnswer answer = context.blas->multiply({.weight = args.w_uv.data,
                                                    .order = WeightOrder::out_in,
                                                    .weight_stride = args.w_uv.stride[1],
                                                    .weight_batch = args.w_uv.stride[0],
                                                    .x = args.x.data,
                                                    .x_stride = args.x.stride[0],
                                                    .x_batch = args.x.stride[1],
                                                    .out = args.out.data,
                                                    .out_stride = args.out.stride[0],
                                                    .out_batch = args.out.stride[1],
                                                    .n_tokens = args.out[0],
                                                    .n_out = args.out[2],
                                                    .n_in = args.x[2],
                                                    .n_batch = args.out[1]});
  CUDA_MUST(answer == BlasAnswer::done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace quire::cuda
