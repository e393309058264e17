// moe_experts: sort the pairs by expert, gate and up in one launch, silu_mul, down, weighted sum.
#include "cuda/gemm/gemm.h"
#include "cuda/kernels.h"
#include "cuda/moe/expert_bank.h"
#include "cuda/moe/expert_rows.h"

namespace quire::cuda {

namespace {

enum Part : size_t { kGate, kUp, kDown };

// Experts of one shape: the routed ones, or the shared one.
struct Side {
  WeightFormat format;
  int group;
  int64_t inner;
  int64_t n_pairs;  // of (token, slot)
  Activation activation;
};

// Everything that a side keeps in the workspace.
struct Scratch {
  Bf16* gate;  // [n_pairs, inner], sorted by expert; then silu(gate) * up
  Bf16* up;    // [n_pairs, inner], sorted by expert
  Bf16* down;  // [n_pairs, hidden], by pair
};

int64_t scratch_bytes(const ops::MoeExperts& args, const Side& side) {
  int64_t bytes = 2 * Workspace::bytes_of<Bf16>(side.n_pairs * side.inner) +
                  Workspace::bytes_of<Bf16>(side.n_pairs * args.x[1]);
  if (side.activation == Activation::fp8_group128) {
    bytes += quantised_bytes(args.x[0], args.x[1]) + quantised_bytes(side.n_pairs, side.inner);
  }
  return bytes;
}

Scratch take_scratch(const Context& context, const ops::MoeExperts& args, const Side& side) {
  Workspace& workspace = *context.workspace;
  return {.gate = workspace.take<Bf16>(side.n_pairs * side.inner),
          .up = workspace.take<Bf16>(side.n_pairs * side.inner),
          .down = workspace.take<Bf16>(side.n_pairs * args.x[1])};
}

// The input of a product: as it is, or quantised.
void set_input(const Context& context, const View<const Bf16, 2>& x, Activation activation,
               GemmParams* p) {
  p->n_in = x[1];
  p->x = x.data;
  p->x_stride = x.stride[0];
  if (activation == Activation::fp8_group128) {
    const Quantised quantised = quantise(context, x);
    p->x = quantised.values;
    p->x_stride = x[1];
    p->x_scale = quantised.scales;
    p->x_scale_stride = quantised.scale_stride;
  }
  p->is_aligned =
      p->is_aligned && reinterpret_cast<uintptr_t>(p->x) % 16 == 0 && p->x_stride % 8 == 0;
}

// E(x) of every pair, by pair; `rows` is null for the shared expert, whose pairs are the tokens.
const Bf16* run_side(const Context& context, const ops::MoeExperts& args, const Side& side,
                     const ExpertRows* rows) {
  const auto& bank = static_cast<const DeviceExpertBank&>(*args.bank);
  const Scratch s = take_scratch(context, args, side);
  GemmParams common{.format = side.format,
                    .group = side.group,
                    .is_aligned = bank.is_aligned,
                    .n_groups = 1,
                    .n_rows = side.n_pairs,
                    .x_divisor = 1};
  if (rows != nullptr) {
    common.group_begin = rows->begin;
    common.n_groups = bank.shape().n_experts;
  }
  const auto weight = [&](Part part, Bf16* out, int64_t stride) {
    return GemmSide{.weight = bank.shared[part],
                    .table = rows == nullptr ? nullptr : bank.tables[part],
                    .out = out,
                    .out_stride = stride};
  };
  GemmParams gate_up = common;
  gate_up.n_sides = 2;
  gate_up.sides[0] = weight(kGate, s.gate, side.inner);
  gate_up.sides[1] = weight(kUp, s.up, side.inner);
  gate_up.n_out = side.inner;
  if (rows != nullptr) {
    gate_up.x_index = rows->pairs;
    gate_up.x_divisor = static_cast<int>(args.experts[1]);
  }
  set_input(context, args.x, side.activation, &gate_up);
  launch_gemm(context, gate_up);

  const View<Bf16, 2> gate = view_of(s.gate, side.n_pairs, side.inner);
  silu_mul(context, {.out = gate, .gate = gate, .up = view_of(s.up, side.n_pairs, side.inner)});

  GemmParams down = common;
  down.n_sides = 1;
  down.sides[0] = weight(kDown, s.down, args.x[1]);
  down.n_out = args.x[1];
  if (rows != nullptr) down.out_index = rows->pairs;
  set_input(context, gate, side.activation, &down);
  launch_gemm(context, down);
  return s.down;
}

Activation activation_for(const ops::MoeExperts& args, WeightFormat format) {
  return format == WeightFormat::fp8_block128 ? args.activation : Activation::bf16;
}

}  // namespace

void moe_experts(const Context& context, const ops::MoeExperts& args) {
  const ops::ExpertShape& shape = args.bank->shape();
  const Side routed{.format = shape.format,
                    .group = shape.group,
                    .inner = shape.inner,
                    .n_pairs = args.experts.size(),
                    .activation = activation_for(args, shape.format)};
  const Side shared{.format = shape.shared_format,
                    .group = shape.shared_group,
                    .inner = shape.shared_inner,
                    .n_pairs = shape.shared_inner > 0 ? args.x[0] : 0,
                    .activation = activation_for(args, shape.shared_format)};
  context.workspace->begin(scratch_bytes(args, routed) + scratch_bytes(args, shared) +
                           Workspace::bytes_of<int32_t>(routed.n_pairs) +
                           Workspace::bytes_of<int32_t>(shape.n_experts + 1));
  const ExpertRows rows{.pairs = context.workspace->take<int32_t>(routed.n_pairs),
                        .begin = context.workspace->take<int32_t>(shape.n_experts + 1)};
  sort_by_expert(context, args.experts, shape.n_experts, rows);
  WeightedSum sum{.out = args.out, .x = nullptr, .shared = nullptr, .weights = args.weights};
  sum.x = run_side(context, args, routed, &rows);
  if (shared.n_pairs > 0) sum.shared = run_side(context, args, shared, nullptr);
  sum_slots(context, sum);
}

}  // namespace quire::cuda
