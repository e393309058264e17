// linear, linear_pair, and the two products by head around absorbed attention.
//
// Products of few tokens go to the thin kernel (thin.h), others to cuBLASLt with BF16 weights and
// to the wide kernel (wide.h) with quantised ones. With Context::deterministic everything goes to
// kernels whose rows do not depend on the batch.
#include <optional>

#include "cuda/gemm/blas.h"
#include "cuda/gemm/head_products.h"
#include "cuda/gemm/plain.h"
#include "cuda/gemm/quantise.h"
#include "cuda/gemm/thin.h"
#include "cuda/gemm/wide.h"
#include "cuda/kernels.h"
#include "cuda/tune/thin_plan.h"
#include "cuda/tune/wide_plan.h"

namespace quire::cuda {

namespace {

// Products by head are so small that one launch is all that counts.
constexpr int64_t kHeadTokensMax = 64;

struct Output {
  Bf16* bf16 = nullptr;
  float* f32 = nullptr;
  int64_t stride = 0;  // elements between tokens
};

Output output_of(const ops::Linear& args) {
  if (args.out.data != nullptr) return {.bf16 = args.out.data, .stride = args.out.stride[0]};
  return {.f32 = args.out_f32.data, .stride = args.out_f32.stride[0]};
}

// x as the kernels of gemm/ take it: rounded first, or as it is.
struct Input {
  const Bf16* values = nullptr;
  int64_t stride = 0;
  const float* scales = nullptr;
  int64_t scale_stride = 0;
};

Input input_of(const Context& context, const View<const Bf16, 2>& x, Activation activation) {
  switch (activation) {
    case Activation::bf16:
      return {.values = x.data, .stride = x.stride[0]};
    case Activation::fp8_group128: {
      context.workspace->begin(quantised_bytes(x[0], x[1]));
      const Quantised q = quantise(context, x);
      return {
          .values = q.values, .stride = x[1], .scales = q.scales, .scale_stride = q.scale_stride};
    }
  }
  CHECK(false);
  return {};
}

ThinSide side_of(const WeightMatrix& weight, const Output& out) {
  return {.weight = ref_of(weight),
          .out = out.bf16,
          .out_f32 = out.f32,
          .out_stride = out.stride,
          .n_out = weight.n_out};
}

ThinProduct thin_product(const WeightMatrix& weight, const Output& out, const Input& x,
                         int64_t n_tokens) {
  return {.sides = {side_of(weight, out), {}},
          .format = weight.format,
          .group = weight.group,
          .n_in = weight.n_in,
          .n_tokens = n_tokens,
          .x = x.values,
          .x_stride = x.stride,
          .x_scale = x.scales,
          .x_scale_stride = x.scale_stride};
}

BlasAnswer multiply_blas(const Context& context, const ops::Linear& args) {
  const Output out = output_of(args);
  void* to = out.f32;
  if (out.bf16 != nullptr) to = out.bf16;
  return context.blas->multiply({.weight = args.weight.bf16.data,
                                 .order = WeightOrder::out_in,
                                 .weight_stride = args.weight.bf16.stride[0],
                                 .x = args.x.data,
                                 .x_stride = args.x.stride[0],
                                 .out = to,
                                 .out_dtype = out.bf16 != nullptr ? Dtype::bf16 : Dtype::f32,
                                 .out_stride = out.stride,
                                 .n_tokens = args.x[0],
                                 .n_out = args.weight.n_out,
                                 .n_in = args.weight.n_in});
}

bool prefers_blas(const Context& context, const WeightMatrix& weight, int64_t n_out,
                  int64_t n_tokens) {
  return weight.format == WeightFormat::bf16 && !context.deterministic &&
         n_tokens > thin_tokens_max(weight.format, n_out, weight.n_in) &&
         !wide_beats_blas(n_tokens, n_out, weight.n_in);
}

// False when the rows of the product lie as neither kernel can read them.
bool multiply_own(const Context& context, const ThinProduct& product) {
  int64_t n_out = 0;
  for (const ThinSide& side :
       std::span(product.sides).first(static_cast<size_t>(product.n_sides))) {
    n_out += side.n_out;
  }
  if (!context.deterministic && is_thin(product) &&
      product.n_tokens <= thin_tokens_max(product.format, n_out, product.n_in)) {
    multiply_thin(context, product);
    return true;
  }
  if (!is_wide(product)) return false;
  multiply_wide(context, product, context.deterministic ? WideTiles::any : WideTiles::by_count);
  return true;
}

// Both maps as one, where BF16 weights and outputs lie next to each other, as those of a model do.
std::optional<ops::Linear> as_one_product(const ops::LinearPair& args) {
  const WeightMatrix& first = args.first.weight;
  const WeightMatrix& second = args.second.weight;
  if (first.format != WeightFormat::bf16 || second.format != WeightFormat::bf16) return {};
  const int64_t stride = first.bf16.stride[0];
  const View<Bf16, 2>& out = args.first.out;
  if (second.bf16.data != first.bf16.data + first.n_out * stride ||
      second.bf16.stride[0] != stride || args.second.out.data != out.data + first.n_out ||
      args.second.out.stride[0] != out.stride[0]) {
    return {};
  }
  ops::Linear one{.out = out, .out_f32 = {}, .x = args.x, .weight = first};
  one.weight.n_out += second.n_out;
  one.weight.bf16.shape[0] = one.weight.n_out;
  one.out.shape[1] = one.weight.n_out;
  return one;
}

}  // namespace

void linear(const Context& context, const ops::Linear& args) {
  if (prefers_blas(context, args.weight, args.weight.n_out, args.x[0]) &&
      multiply_blas(context, args) == BlasAnswer::done) {
    return;
  }
  const Input x = input_of(context, args.x, args.activation);
  const ThinProduct product = thin_product(args.weight, output_of(args), x, args.x[0]);
  if (!multiply_own(context, product)) multiply_plain(context, product);
}

void linear_pair(const Context& context, const ops::LinearPair& args) {
  const WeightMatrix& first = args.first.weight;
  const WeightMatrix& second = args.second.weight;
  const bool is_for_blas = prefers_blas(context, first, first.n_out + second.n_out, args.x[0]);
  if (const auto one = as_one_product(args); one && is_for_blas) return linear(context, *one);
  const bool is_alike = first.format == second.format && first.group == second.group &&
                        args.first.activation == args.second.activation;
  if (is_alike && !is_for_blas) {
    const auto output = [](const View<Bf16, 2>& out) {
      return Output{.bf16 = out.data, .stride = out.stride[0]};
    };
    const Input x = input_of(context, args.x, args.first.activation);
    ThinProduct product = thin_product(first, output(args.first.out), x, args.x[0]);
    product.sides[1] = side_of(second, output(args.second.out));
    product.n_sides = 2;
    if (multiply_own(context, product)) return;
  }
  for (const ops::LinearPair::Side* side : {&args.first, &args.second}) {
    linear(context, {.out = side->out,
                     .out_f32 = {},
                     .x = args.x,
                     .weight = side->weight,
                     .activation = side->activation});
  }
}

void expand_value(const Context& context, const ops::ExpandValue& args) {
  if (context.deterministic || args.out[0] <= kHeadTokensMax) return launch_expand(context, args);
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
  if (answer == BlasAnswer::not_supported) launch_expand(context, args);
}

void absorb_query(const Context& context, const ops::AbsorbQuery& args) {
  if (context.deterministic || args.out[0] <= kHeadTokensMax) return launch_absorb(context, args);
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
  if (answer == BlasAnswer::not_supported) return launch_absorb(context, args);
  if (args.q_rope.data == nullptr) return;
  rope(context, {.x = args.q_rope, .positions = args.positions, .cos = args.cos, .sin = args.sin});
}

}  // namespace quire::cuda
