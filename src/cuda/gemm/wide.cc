#include "cuda/gemm/wide.h"

#include "base/bytes.h"
#include "base/check.h"
#include "cuda/gemm/wide_formats.h"

namespace quire::cuda {

namespace {

int64_t inputs_of_chunk(WeightFormat format) { return format == WeightFormat::bf16 ? 64 : 128; }

WideShape shape_of(const ThinProduct& p) {
  int64_t tiles = 0;
  for (const ThinSide& side : std::span(p.sides).first(static_cast<size_t>(p.n_sides))) {
    tiles += div_up(side.n_out, int64_t{kWideRows});
  }
  return {.n_row_tiles = tiles,
          .n_chunks = div_up(p.n_in, inputs_of_chunk(p.format)),
          .n_tokens = p.n_tokens};
}

}  // namespace

bool is_wide(const ThinProduct& p) {
  if (!is_thin(p)) return false;
  if (p.format != WeightFormat::int4_group) return true;
  for (const ThinSide& side : std::span(p.sides).first(static_cast<size_t>(p.n_sides))) {
    if (p.n_in / p.group % 2 != 0 || side.weight.scale_stride % 2 != 0 ||
        reinterpret_cast<uintptr_t>(side.weight.scales) % 4 != 0) {
      return false;
    }
  }
  return true;
}

void multiply_wide(const Context& context, const ThinProduct& product, WideTiles choice) {
  CHECK(is_wide(product));
  if (product.n_tokens == 0) return;
  const WideShape shape = shape_of(product);
  const bool is_any = choice == WideTiles::any || product.format == WeightFormat::bf16;
  const WidePlan plan =
      is_any ? wide_plan_any(shape, context.n_sms) : wide_plan(shape, context.n_sms);
  switch (product.format) {
    case WeightFormat::bf16:
      return launch_wide_bf16(context, product, plan);
    case WeightFormat::fp8_block128:
      return launch_wide_fp8(context, product, plan);
    case WeightFormat::int4_group:
      return launch_wide_int4(context, product, plan);
  }
}

}  // namespace quire::cuda
