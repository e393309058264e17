// moe_experts: routing, gate and up, down, weighted sum; for many tokens lists of tokens by expert,
// too.
//
// A handful of tokens takes two launches of their own; few take the decode kernels, which give a
// row the same bits in any batch, 64 a turn; many take those that work on tiles of tokens. A
// deterministic context always takes the decode kernels.
#include "cuda/moe/moe_experts.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/gemm/quantise.h"
#include "cuda/kernels.h"
#include "cuda/moe/expert_bank.h"
#include "cuda/moe/expert_decode.h"
#include "cuda/moe/expert_lists.h"
#include "cuda/moe/expert_prefill.h"
#include "cuda/moe/expert_ring.h"
#include "cuda/moe/expert_sum.h"
#include "cuda/moe/few_experts.h"
#include "cuda/moe/input_order.h"
#include "cuda/moe/route.h"
#include "cuda/tune/experts_plan.h"
#include "cuda/tune/few_experts_plan.h"

namespace quire::cuda {

namespace {

// Of what a warp of down could do while a unit of gate and up is done, what it does.
constexpr double kLead = 0.85;

constexpr int64_t kVector = 8;  // inputs of a row that are read at once

bool has_whole_vectors(const View<const Bf16, 2>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride[0] % kVector == 0 &&
         x[1] % kVector == 0;
}

// x as kernels can read it: itself, or a copy with zeros behind each row.
View<const Bf16, 2> with_whole_vectors(const Context& context, const View<const Bf16, 2>& x) {
  if (has_whole_vectors(x)) return x;
  const int64_t width = round_up(x[1], kVector);
  const View<Bf16, 2> out = view_of(context.workspace->take<Bf16>(x[0] * width), x[0], width);
  const auto bytes = [](int64_t n) { return static_cast<size_t>(n) * sizeof(Bf16); };
  CUDA_MUST(cudaMemsetAsync(out.data, 0, bytes(out.size()), context.stream));
  CUDA_MUST(cudaMemcpy2DAsync(out.data, bytes(width), x.data, bytes(x.stride[0]), bytes(x[1]),
                              static_cast<size_t>(x[0]), cudaMemcpyDeviceToDevice, context.stream));
  return out;
}

// What rows of inputs are rounded up to.
int64_t row_multiple(const ExpertsPlan& plan) {
  return plan.turn_tokens > 0 ? kVector : kInputStep;
}

// One kind of expert, routed or shared, in one call.
struct Kind {
  PackedExperts weights;
  int64_t n_rows;  // pairs of (token, slot), or tokens
  int64_t hidden;  // rounded up
  int64_t inner;   // rounded up
  Activation activation;
  Bf16* gated = nullptr;  // [n_rows, inner]
};

Kind kind_of(const ops::MoeExperts& args, const PackedExperts& weights, int64_t n_rows,
             int64_t inner, const ExpertsPlan& plan) {
  const bool is_fp8 = weights.gate_up.format == WeightFormat::fp8_block128;
  return {.weights = weights,
          .n_rows = n_rows,
          .hidden = round_up(args.x[1], row_multiple(plan)),
          .inner = round_up(inner, row_multiple(plan)),
          .activation = is_fp8 ? args.activation : Activation::bf16};
}

// Of inner values.
int64_t bytes_of(const Kind& kind) {
  int64_t bytes = Workspace::bytes_of<Bf16>(kind.n_rows * kind.inner);
  if (kind.activation == Activation::fp8_group128) {
    bytes += quantised_bytes(kind.n_rows, kind.inner);
  }
  return bytes;
}

ExpertInput input_of(const Context& context, const View<const Bf16, 2>& x, Activation activation) {
  ExpertInput out{.rows = x.data,
                  .stride = x.stride[0],
                  .scales = nullptr,
                  .scale_stride = 0,
                  .n_in = static_cast<int>(x[1])};
  if (activation == Activation::bf16) return out;
  const Quantised quantised = quantise(context, x);
  out.rows = quantised.values;
  out.stride = x[1];
  out.scales = quantised.scales;
  out.scale_stride = quantised.scale_stride;
  return out;
}

// Both kinds of expert of a call, and their first input. Begins the workspace, with `more_bytes`
// left for lists and partial sums.
struct Mixture {
  Kind routed, shared;
  View<const Bf16, 2> x;
};

Mixture begin_mixture(const Context& context, const ops::MoeExperts& args, const ExpertsPlan& plan,
                      int64_t more_bytes) {
  const auto& bank = static_cast<const DeviceExpertBank&>(*args.bank);
  const ops::ExpertShape& shape = bank.shape();
  const int64_t n_shared = shape.shared_inner > 0 ? args.x[0] : 0;
  Mixture m{.routed = kind_of(args, bank.routed(), args.experts.size(), shape.inner, plan),
            .shared = kind_of(args, bank.shared(), n_shared, shape.shared_inner, plan),
            .x = {}};
  Workspace& workspace = *context.workspace;
  const bool is_rounded = m.routed.activation == Activation::fp8_group128 ||
                          m.shared.activation == Activation::fp8_group128;
  workspace.begin(bytes_of(m.routed) + bytes_of(m.shared) +
                  (is_rounded ? quantised_bytes(args.x[0], m.routed.hidden) : 0) +
                  Workspace::bytes_of<Bf16>(args.x[0] * m.routed.hidden) + more_bytes);
  for (Kind* kind : {&m.routed, &m.shared}) {
    kind->gated = workspace.take<Bf16>(kind->n_rows * kind->inner);
  }
  if (plan.turn_tokens > 0) {
    m.x = with_whole_vectors(context, args.x);
  } else {
    const int64_t width = m.routed.hidden;
    const View<Bf16, 2> x = view_of(workspace.take<Bf16>(args.x[0] * width), args.x[0], width);
    order_inputs(context, x, args.x);
    m.x = x;
  }
  return m;
}

struct Sides {
  ExpertSide routed, shared;
};

ExpertSide gate_up_side(const Kind& kind, const ExpertInput& input) {
  if (kind.n_rows == 0) return {};
  return {.weights = kind.weights.gate_up,
          .input = input,
          .n_out = static_cast<int>(kind.inner),
          .out_stride = kind.inner,
          .out = kind.gated};
}

// The input is rounded once for both.
Sides gate_up_sides(const Context& context, const Mixture& m) {
  const ExpertInput routed = input_of(context, m.x, m.routed.activation);
  const bool is_same = m.shared.n_rows == 0 || m.shared.activation == m.routed.activation;
  return {gate_up_side(m.routed, routed),
          gate_up_side(m.shared, is_same ? routed : input_of(context, m.x, m.shared.activation))};
}

// Without its output.
ExpertSide down_side(const Context& context, const ops::MoeExperts& args, const Kind& kind) {
  if (kind.n_rows == 0) return {};
  const View<const Bf16, 2> gated = view_of(kind.gated, kind.n_rows, kind.inner);
  return {.weights = kind.weights.down,
          .input = input_of(context, gated, kind.activation),
          .n_out = static_cast<int>(args.x[1]),
          .out_stride = round_up(args.x[1], kTileRows),
          .out = nullptr};
}

// What a unit of gate and up is, and how far ahead of the others down's first blocks are.
void cut_gate_up(const Context& context, const Mixture& m, const ExpertsPlan& plan,
                 DecodeParams* params) {
  const PackedMatrix& routed = m.routed.weights.gate_up;
  const int64_t n_groups = std::min(m.routed.n_rows, routed.n_experts) * routed.n_groups;
  const DecodeGrid grid = plan.by_ring ? kRingGrid : kDecodeGrid;
  // Whole groups read an input once for four tiles; single tiles give a few experts enough blocks.
  params->unit = n_groups >= int64_t{grid.blocks_per_sm} * context.n_sms ? kGroupTiles : 1;
  params->gate_up = {
      .routed = routed.n_groups * kGroupTiles,
      .shared = m.shared.n_rows > 0 ? m.shared.weights.gate_up.n_groups * kGroupTiles : 0};
  const bool is_rounded = m.routed.activation == Activation::fp8_group128 ||
                          m.shared.activation == Activation::fp8_group128;
  if (is_rounded) return;  // another kernel stands between gate and up and down
  params->arrived = context.arrived;
  CHECK(routed.n_experts < kArrived);
  const double unit_steps = static_cast<double>(routed.n_steps) * params->unit / grid.warps;
  const double group_steps = m.routed.weights.down.n_steps * double{kGroupTiles};
  params->lead = static_cast<int>(std::lround(kLead * unit_steps / group_steps));
}

void run_decode(const Context& context, const ops::MoeExperts& args, const ExpertsPlan& plan) {
  const int64_t n_pairs = args.experts.size();
  const int64_t hidden = round_up(args.x[1], kTileRows);
  const int64_t n_partial = (n_pairs + args.x[0]) * hidden;
  const Mixture m = begin_mixture(context, args, plan, Workspace::bytes_of<Bf16>(n_partial));
  auto* partial = context.workspace->take<Bf16>(n_partial);
  const Sides gate_up = gate_up_sides(context, m);
  DecodeParams params{.routed = gate_up.routed,
                      .shared = gate_up.shared,
                      .experts = args.experts.data,
                      .experts_stride = args.experts.stride[0],
                      .n_tokens = static_cast<int>(args.x[0]),
                      .top_k = static_cast<int>(args.experts[1]),
                      .unit = 1,
                      .gate_up = {},
                      .lead = 0,
                      .arrived = nullptr};
  cut_gate_up(context, m, plan, &params);
  if (plan.by_ring) {
    launch_ring_gate_up(context, params);
  } else {
    launch_gate_up(context, params);
  }
  params.routed = down_side(context, args, m.routed);
  params.shared = down_side(context, args, m.shared);
  params.routed.out = partial;
  params.shared.out = partial + n_pairs * hidden;
  if (plan.by_ring) {
    launch_ring_down(context, params);
  } else {
    launch_down(context, params);
  }
  sum_experts(context, {.out = args.out,
                        .routed = partial,
                        .shared = m.shared.n_rows > 0 ? params.shared.out : nullptr,
                        .stride = hidden,
                        .weights = args.weights,
                        .order = SumOrder::tiles,
                        .arrived = params.arrived,
                        .n_arrived = static_cast<int>(m.routed.weights.gate_up.n_experts) + 1});
}

BatchBits batch_bits(const Context& context) {
  return context.deterministic ? BatchBits::must_not : BatchBits::may_differ;
}

FewExpertsPlan plan_few(const Context& context, const ops::MoeExperts& args) {
  const auto& bank = static_cast<const DeviceExpertBank&>(*args.bank);
  const ops::ExpertShape& shape = bank.shape();
  const PackedMatrix& shared = bank.shared().gate_up;
  const bool is_rounded = args.activation == Activation::fp8_group128 &&
                          (bank.routed().gate_up.format == WeightFormat::fp8_block128 ||
                           shared.format == WeightFormat::fp8_block128);
  if (is_rounded) return {};
  return plan_few_experts({.n_tokens = args.x[0],
                           .top_k = args.experts[1],
                           .hidden = args.x[1],
                           .inner = shape.inner,
                           .shared_inner = shape.shared_inner,
                           .shared_tiles = int64_t{shared.n_groups} * kGroupTiles,
                           .shared_steps = shared.n_steps,
                           .n_sms = context.n_sms,
                           .bits = batch_bits(context)});
}

void run_few(const Context& context, const ops::MoeExperts& args, const FewExpertsPlan& plan) {
  const auto& bank = static_cast<const DeviceExpertBank&>(*args.bank);
  const int64_t gated_stride = round_up(bank.shape().inner, kVector);
  const int64_t gated = args.experts.size() * gated_stride;
  Workspace& workspace = *context.workspace;
  workspace.begin(Workspace::bytes_of<Bf16>(gated) +
                  Workspace::bytes_of<Bf16>(args.x[0] * round_up(args.x[1], kVector)) +
                  Workspace::bytes_of<float>(plan.shared_sums));
  const View<const Bf16, 2> x = with_whole_vectors(context, args.x);
  const FewExperts experts{.routed = bank.routed(),
                           .shared = bank.shared(),
                           .choice = {.experts = args.experts.data,
                                      .weights = args.weights.data,
                                      .experts_stride = args.experts.stride[0],
                                      .weights_stride = args.weights.stride[0],
                                      .n_tokens = static_cast<int>(args.x[0]),
                                      .top_k = static_cast<int>(args.experts[1])},
                           .x = input_of(context, x, Activation::bf16),
                           .gated = workspace.take<Bf16>(gated),
                           .gated_stride = gated_stride,
                           .shared_sums = workspace.take<float>(plan.shared_sums),
                           .shared_parts = static_cast<int>(plan.shared_parts),
                           .out = args.out.data,
                           .out_stride = args.out.stride[0],
                           .width = static_cast<int>(args.x[1])};
  launch_few_gate_up(context, plan, experts);
  launch_few_down(context, plan, experts);
}

// The outputs are taken in parts, so that the partial sums of all pairs need not be kept at once.
void run_prefill(const Context& context, const ops::MoeExperts& args, const ExpertsPlan& plan) {
  const int64_t n_pairs = args.experts.size();
  const int64_t stride = plan.blocks * kPromptBlockRows;
  // Kernels count 16 bytes in 32 bits.
  CHECK(n_pairs * std::max(stride, round_up(args.x[1], kInputStep)) / kVector <= INT32_MAX);
  const int64_t n_experts = static_cast<const DeviceExpertBank&>(*args.bank).shape().n_experts;
  const ListSizes sizes{
      .n_pairs = n_pairs, .n_experts = n_experts, .tile_tokens = plan.tile_tokens};
  const Mixture m = begin_mixture(
      context, args, plan, lists_bytes(sizes) + round_up(plan.partial_bytes, kBufferAlignment));
  const ExpertLists lists = take_lists(context, sizes);
  list_experts(context, args.experts, n_experts, lists);
  auto* partial = context.workspace->take<Bf16>((n_pairs + args.x[0]) * stride);
  const Sides gate_up = gate_up_sides(context, m);
  PrefillParams params{.routed = gate_up.routed,
                       .shared = gate_up.shared,
                       .lists = lists,
                       .n_tokens = static_cast<int>(args.x[0]),
                       .top_k = static_cast<int>(args.experts[1]),
                       .first_block = 0,
                       .n_blocks = 0,
                       .unit_blocks = 1};
  launch_gate_up_tiles(context, params);
  params.routed = down_side(context, args, m.routed);
  params.shared = down_side(context, args, m.shared);
  params.routed.out = partial;
  params.shared.out = partial + n_pairs * stride;
  params.routed.out_stride = params.shared.out_stride = stride;
  params.unit_blocks = static_cast<int>(plan.unit_blocks);
  for (int64_t first = 0; first < plan.n_blocks; first += plan.blocks) {
    params.first_block = static_cast<int>(first);
    params.n_blocks = static_cast<int>(std::min(plan.blocks, plan.n_blocks - first));
    launch_down_tiles(context, params);
    const int64_t begin = first * kPromptBlockRows;
    sum_experts(context, {.out = args.out.columns(begin, std::min(stride, args.x[1] - begin)),
                          .routed = partial,
                          .shared = m.shared.n_rows > 0 ? params.shared.out : nullptr,
                          .stride = stride,
                          .weights = args.weights,
                          .order = SumOrder::plain});
  }
}

ExpertsPlan plan_many(const Context& context, const ops::MoeExperts& args) {
  const auto& bank = static_cast<const DeviceExpertBank&>(*args.bank);
  return plan_experts({.n_tokens = args.x[0],
                       .top_k = args.experts[1],
                       .n_experts = bank.shape().n_experts,
                       .hidden = bank.shape().hidden,
                       .bits = batch_bits(context),
                       .format = bank.routed().gate_up.format});
}

}  // namespace

bool experts_want_shared_memory(const Context& context, const ops::MoeExperts& args) {
  return !plan_few(context, args).fits && plan_many(context, args).by_ring;
}

void moe_experts(const Context& context, const ops::MoeExperts& args) {
  const FewExpertsPlan few = plan_few(context, args);
  const ExpertsPlan plan = plan_many(context, args);
  // By registers gate and up live by the first-level cache: beside blocks of the router's they
  // would have to live with the one that those had left (docs/kernels/experts.md).
  const bool by_registers = !few.fits && plan.turn_tokens > 0 && !plan.by_ring;
  route_tokens(context, args,
               by_registers ? NextKernel::behind_earlier : NextKernel::beside_earlier);
  if (few.fits) return run_few(context, args, few);
  if (plan.turn_tokens == 0) return run_prefill(context, args, plan);
  for (int64_t begin = 0; begin < args.x[0]; begin += plan.turn_tokens) {
    run_decode(context, args.rows(begin, std::min(plan.turn_tokens, args.x[0] - begin)), plan);
  }
}

}  // namespace quire::cuda
