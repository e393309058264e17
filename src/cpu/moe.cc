#include <algorithm>
#include <cmath>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

void route_token(const ops::MoeRoute& args, int64_t token, Scratch& scratch) {
  const int64_t n_experts = args.scores[1];
  const int64_t top_k = args.experts[1];
  float* probability = scratch.take<float>(n_experts);
  float* key = scratch.take<float>(n_experts);
  auto* order = scratch.take<int32_t>(n_experts);
  bool has_nan = false;
  for (int64_t e = 0; e < n_experts; ++e) {
    probability[e] = 1.0F / (1.0F + std::exp(-args.scores(token, e)));
    key[e] = probability[e] + args.bias.data[e];
    has_nan |= std::isnan(key[e]);
    order[e] = static_cast<int32_t>(e);
  }
  if (!has_nan) {  // otherwise the order below would not be one
    std::partial_sort(order, order + top_k, order + n_experts, [&](int32_t a, int32_t b) {
      return key[a] != key[b] ? key[a] > key[b] : a < b;
    });
  }
  float sum = 0;
  for (int64_t k = 0; k < top_k; ++k) sum += probability[order[k]];
  const float divisor = args.mode == ops::RouteWeights::normalised ? sum + 1e-20F : 1.0F;
  for (int64_t k = 0; k < top_k; ++k) {
    args.experts(token, k) = order[k];
    args.weights(token, k) =
        has_nan ? std::nanf("") : args.scaling * (probability[order[k]] / divisor);
  }
}

}  // namespace

void moe_route(Workers& workers, const ops::MoeRoute& args) {
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    for (int64_t token = worker; token < args.scores[0]; token += workers.count()) {
      scratch.reset();
      route_token(args, token, scratch);
    }
  });
}

void moe_experts(Workers& workers, const ops::MoeExperts& args) {
  const int64_t hidden = args.out[1];
  const int64_t inner = args.table[0].gate.n_out;
  const int64_t top_k = args.experts[1];
  std::vector<Bf16> gate(static_cast<size_t>(inner));
  std::vector<Bf16> up(static_cast<size_t>(inner));
  std::vector<Bf16> down(static_cast<size_t>(hidden));
  std::vector<float> sum(static_cast<size_t>(hidden));
  for (int64_t token = 0; token < args.out[0]; ++token) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t index = args.experts(token, k);
      CHECK(0 <= index && static_cast<size_t>(index) < args.table.size());
      const ops::ExpertWeights& expert = args.table[static_cast<size_t>(index)];
      const View<Bf16, 2> gate_view = view_of(gate.data(), int64_t{1}, inner);
      const View<Bf16, 2> up_view = view_of(up.data(), int64_t{1}, inner);
      const View<Bf16, 2> down_view = view_of(down.data(), int64_t{1}, hidden);
      const View<const Bf16, 2> x = args.x.rows(token, 1);
      linear(workers,
             {.out = gate_view, .x = x, .weight = expert.gate, .activation = args.activation});
      linear(workers, {.out = up_view, .x = x, .weight = expert.up, .activation = args.activation});
      silu_mul(workers, {.out = gate_view, .gate = gate_view, .up = up_view});
      linear(
          workers,
          {.out = down_view, .x = gate_view, .weight = expert.down, .activation = args.activation});
      const float weight = args.weights(token, k);
      for (int64_t i = 0; i < hidden; ++i) {
        sum[static_cast<size_t>(i)] += weight * to_float(down[static_cast<size_t>(i)]);
      }
    }
    for (int64_t i = 0; i < hidden; ++i) args.out(token, i) = to_bf16(sum[static_cast<size_t>(i)]);
  }
}

}  // namespace quire::cpu
