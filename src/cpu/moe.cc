#include <algorithm>
#include <cmath>

#include "cpu/kernels.h"
#include "cpu/multiply.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

void route_token(const ops::MoeRoute& args, int64_t token, Scratch& scratch) {
  const int64_t n_experts = args.scores[1];
  const int64_t top_k = args.experts[1];
  float* probability = scratch.take<float>(n_experts);
  float* key = scratch.take<float>(n_experts);
  auto* order = scratch.take<int32_t>(n_experts);
  bool has_nan = false;
  sigmoid_row(args.scores.row(token).data, n_experts, probability);
  for (int64_t e = 0; e < n_experts; ++e) {
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

// A step's pairs of token and slot, expert by expert: what lets an expert's weights be read once.
// Pair token * top_k + k belongs to slot k of the token; pairs of an expert are in that order.
struct Grouped {
  const int64_t* pairs;   // [n_pairs] sorted by expert
  const int64_t* begins;  // [n_experts + 1] into pairs
};

Grouped group_by_expert(const ops::MoeExperts& args, Scratch& scratch) {
  const auto n_experts = static_cast<int64_t>(args.table.size());
  const int64_t n_pairs = args.experts.size();
  const int64_t top_k = args.experts[1];
  auto* pairs = scratch.take<int64_t>(n_pairs);
  auto* begins = scratch.take<int64_t>(n_experts + 1);
  auto* next = scratch.take<int64_t>(n_experts);
  std::fill_n(begins, n_experts + 1, 0);
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const int64_t expert = args.experts(pair / top_k, pair % top_k);
    CHECK(0 <= expert && expert < n_experts);
    ++begins[expert + 1];
  }
  for (int64_t e = 0; e < n_experts; ++e) begins[e + 1] += begins[e];
  std::copy_n(begins, n_experts, next);
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    pairs[next[args.experts(pair / top_k, pair % top_k)]++] = pair;
  }
  return {pairs, begins};
}

// What the workers of one moe_experts share. Arrays of pairs are in grouped order.
struct Mixture {
  const ops::MoeExperts& args;
  Grouped grouped;
  int64_t hidden, inner, top_k, n_tokens, n_pairs;
  float* x;      // [n_tokens, padded hidden] as the products see it
  float* gated;  // [n_pairs, padded inner] silu(gate) * up
  float* down;   // [n_pairs, hidden] before rounding
};

// Calls body(expert, its range of grouped pairs) for every expert that a token chose, with at most
// `at_once` pairs a time.
template <class Body>
void each_expert(const Mixture& m, int64_t at_once, const Body& body) {
  for (size_t e = 0; e < m.args.table.size(); ++e) {
    const int64_t end = m.grouped.begins[e + 1];
    for (int64_t begin = m.grouped.begins[e]; begin < end; begin += at_once) {
      body(m.args.table[e], Share{begin, std::min(begin + at_once, end)});
    }
  }
}

// gated = silu(gate x) * (up x) for some of the inner rows of every expert.
void run_gates(const Mixture& m, Share rows, Scratch& scratch) {
  const int64_t at_once = tokens_at_once(m.hidden);
  const int64_t n_rows = rows.end - rows.begin;
  const float** x = scratch.take<const float*>(at_once);
  float* gate = scratch.take<float>(at_once * n_rows);
  float* up = scratch.take<float>(at_once * n_rows);
  each_expert(m, at_once, [&](const ops::ExpertWeights& expert, Share pairs) {
    const int64_t n = pairs.end - pairs.begin;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = m.x + m.grouped.pairs[pairs.begin + i] / m.top_k * padded(m.hidden);
    }
    multiply({&expert.gate, rows, x, n, gate, n_rows}, scratch);
    multiply({&expert.up, rows, x, n, up, n_rows}, scratch);
    for (int64_t i = 0; i < n; ++i) {
      silu_mul_row(gate + i * n_rows, up + i * n_rows, n_rows,
                   m.gated + (pairs.begin + i) * padded(m.inner) + rows.begin);
    }
  });
}

// Some of the outputs of every expert, then of every token: slots are added in order of k.
void run_downs(const Mixture& m, Share rows, Scratch& scratch) {
  const int64_t at_once = tokens_at_once(m.inner);
  const int64_t n_rows = rows.end - rows.begin;
  const float** x = scratch.take<const float*>(at_once);
  each_expert(m, at_once, [&](const ops::ExpertWeights& expert, Share pairs) {
    const int64_t n = pairs.end - pairs.begin;
    for (int64_t i = 0; i < n; ++i) x[i] = m.gated + (pairs.begin + i) * padded(m.inner);
    float* out = m.down + pairs.begin * m.hidden + rows.begin;
    multiply({&expert.down, rows, x, n, out, m.hidden}, scratch);
  });
  auto* place = scratch.take<int64_t>(m.n_pairs);  // of a pair, in grouped order
  for (int64_t i = 0; i < m.n_pairs; ++i) place[m.grouped.pairs[i]] = i;
  float* sum = scratch.take<float>(n_rows);
  for (int64_t token = 0; token < m.n_tokens; ++token) {
    std::fill_n(sum, n_rows, 0.0F);
    for (int64_t k = 0; k < m.top_k; ++k) {
      const float* y = m.down + place[token * m.top_k + k] * m.hidden + rows.begin;
      add_weighted_row(y, m.args.weights(token, k), n_rows, sum);
    }
    float_to_bf16(sum, n_rows, m.args.out.row(token).data + rows.begin);
  }
}

// At most kMixtureTokens tokens: bounds the memory between the two products.
constexpr int64_t kMixtureTokens = 512;

void run_mixture(Workers& workers, const ops::MoeExperts& args) {
  constexpr int64_t kRowUnit = 4;
  Scratch& shared = workers.shared();
  shared.reset();
  Mixture m{.args = args,
            .grouped = group_by_expert(args, shared),
            .hidden = args.out[1],
            .inner = args.table[0].gate.n_out,
            .top_k = args.experts[1],
            .n_tokens = args.out[0],
            .n_pairs = args.experts.size(),
            .x = nullptr,
            .gated = nullptr,
            .down = nullptr};
  m.x = shared.take<float>(m.n_tokens * padded(m.hidden));
  m.gated = shared.take<float>(m.n_pairs * padded(m.inner));
  m.down = shared.take<float>(m.n_pairs * m.hidden);
  for (int64_t t = 0; t < m.n_tokens; ++t) {
    load_activation(args.x.row(t).data, m.hidden, args.activation, m.x + t * padded(m.hidden));
  }
  const int n_workers = workers.count_for(m.n_pairs * m.hidden * m.inner);
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    run_gates(m, share_of(worker, n_workers, m.inner, kRowUnit), scratch);
  });
  for (int64_t i = 0; i < m.n_pairs; ++i) {
    float* row = m.gated + i * padded(m.inner);
    std::fill(row + m.inner, row + padded(m.inner), 0.0F);
    round_activation(row, m.inner, args.activation);
  }
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    run_downs(m, share_of(worker, n_workers, m.hidden, kRowUnit), scratch);
  });
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
  for (int64_t begin = 0; begin < args.out[0]; begin += kMixtureTokens) {
    const int64_t n = std::min(kMixtureTokens, args.out[0] - begin);
    ops::MoeExperts part = args;
    part.out = args.out.rows(begin, n);
    part.x = args.x.rows(begin, n);
    part.experts = args.experts.rows(begin, n);
    part.weights = args.weights.rows(begin, n);
    run_mixture(workers, part);
  }
}

}  // namespace quire::cpu
