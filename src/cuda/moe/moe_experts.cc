// moe_experts: sort the pairs by expert, gate and up in one launch, silu_mul, down, weighted sum.
#include <vector>

#include "cuda/gemm/gemm.h"
#include "cuda/kernels.h"
#include "cuda/moe/expert_rows.h"

namespace quire::cuda {

namespace {

enum Part : size_t { kGate, kUp, kDown, kParts };

const WeightMatrix& part_of(const ops::ExpertWeights& expert, size_t part) {
  if (part == kGate) return expert.gate;
  return part == kUp ? expert.up : expert.down;
}

// Everything that the op keeps in the workspace. A pair is one (token, slot).
struct Scratch {
  std::array<WeightRef*, kParts> tables;  // [n_experts] each
  ExpertRows rows;
  Bf16* gate;  // [n_pairs, inner], sorted by expert; then silu(gate) * up
  Bf16* up;    // [n_pairs, inner], sorted by expert
  Bf16* down;  // [n_pairs, hidden], by pair
};

struct Sizes {
  int64_t n_experts, n_pairs, hidden, inner;
};

Scratch take_scratch(const Context& context, const ops::MoeExperts& args, const Sizes& n) {
  Workspace& workspace = *context.workspace;
  int64_t bytes = kParts * Workspace::bytes_of<WeightRef>(n.n_experts) +
                  Workspace::bytes_of<int32_t>(n.n_pairs) +
                  Workspace::bytes_of<int32_t>(n.n_experts + 1) +
                  2 * Workspace::bytes_of<Bf16>(n.n_pairs * n.inner) +
                  Workspace::bytes_of<Bf16>(n.n_pairs * n.hidden);
  if (args.activation == Activation::fp8_group128) {
    bytes += quantised_bytes(args.x[0], n.hidden) + quantised_bytes(n.n_pairs, n.inner);
  }
  workspace.begin(bytes);
  Scratch s;
  for (WeightRef*& table : s.tables) table = workspace.take<WeightRef>(n.n_experts);
  s.rows.pairs = workspace.take<int32_t>(n.n_pairs);
  s.rows.begin = workspace.take<int32_t>(n.n_experts + 1);
  s.gate = workspace.take<Bf16>(n.n_pairs * n.inner);
  s.up = workspace.take<Bf16>(n.n_pairs * n.inner);
  s.down = workspace.take<Bf16>(n.n_pairs * n.hidden);
  return s;
}

// Where the weights of each expert are. Sent with every call: the span is the caller's.
bool send_tables(const Context& context, const ops::MoeExperts& args, const Scratch& s) {
  bool all_aligned = true;
  std::vector<WeightRef> refs(args.table.size());
  for (size_t part = 0; part < kParts; ++part) {
    for (size_t e = 0; e < refs.size(); ++e) {
      const WeightMatrix& weight = part_of(args.table[e], part);
      refs[e] = ref_of(weight);
      all_aligned = all_aligned && is_aligned(weight);
    }
    context.staging->send(reinterpret_cast<std::byte*>(s.tables[part]),
                          std::as_bytes(std::span(refs)));
  }
  return all_aligned;
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

}  // namespace

void moe_experts(const Context& context, const ops::MoeExperts& args) {
  const WeightMatrix& first = args.table[0].gate;
  const int64_t top_k = args.experts[1];
  const Sizes n{.n_experts = static_cast<int64_t>(args.table.size()),
                .n_pairs = args.experts.size(),
                .hidden = args.out[1],
                .inner = first.n_out};
  const Scratch s = take_scratch(context, args, n);
  GemmParams common{.format = first.format,
                    .group = first.group,
                    .is_aligned = send_tables(context, args, s),
                    .group_begin = s.rows.begin,
                    .n_groups = n.n_experts,
                    .n_rows = n.n_pairs,
                    .x_divisor = 1};
  sort_by_expert(context, args.experts, n.n_experts, s.rows);

  GemmParams gate_up = common;
  gate_up.n_sides = 2;
  gate_up.sides[0] = {.table = s.tables[kGate], .out = s.gate, .out_stride = n.inner};
  gate_up.sides[1] = {.table = s.tables[kUp], .out = s.up, .out_stride = n.inner};
  gate_up.n_out = n.inner;
  gate_up.x_index = s.rows.pairs;
  gate_up.x_divisor = static_cast<int>(top_k);
  set_input(context, args.x, args.activation, &gate_up);
  launch_gemm(context, gate_up);

  const View<Bf16, 2> gate = view_of(s.gate, n.n_pairs, n.inner);
  silu_mul(context, {.out = gate, .gate = gate, .up = view_of(s.up, n.n_pairs, n.inner)});

  GemmParams down = common;
  down.n_sides = 1;
  down.sides[0] = {.table = s.tables[kDown], .out = s.down, .out_stride = n.hidden};
  down.n_out = n.hidden;
  down.out_index = s.rows.pairs;
  down.group = args.table[0].down.group;
  set_input(context, gate, args.activation, &down);
  launch_gemm(context, down);
  sum_slots(context, {.out = args.out, .x = s.down, .weights = args.weights});
}

}  // namespace quire::cuda
