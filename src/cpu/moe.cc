#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/multiply.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

void route_token(const ops::MoeExperts& args, int64_t token, Scratch& scratch) {
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

// The matrices stay where they are: a bank is a list of views.
class RawBank final : public ops::ExpertBank {
 public:
  explicit RawBank(const ops::ExpertTable& table)
      : ExpertBank(ops::shape_of(table)),
        routed_(table.routed.begin(), table.routed.end()),
        shared_(table.shared.value_or(ops::ExpertWeights{})) {}

  int64_t bytes() const override { return 0; }
  std::span<const ops::ExpertWeights> routed() const { return routed_; }
  // One expert, or none.
  std::span<const ops::ExpertWeights> shared() const {
    return {&shared_, shape().shared_inner > 0 ? 1U : 0U};
  }

 private:
  std::vector<ops::ExpertWeights> routed_;  // the matrices outlive this
  ops::ExpertWeights shared_;
};

// Pairs of token and slot, expert by expert: what lets an expert's weights be read once. Pair
// token * n_slots + k belongs to slot k of the token; pairs of an expert are in that order.
struct Grouped {
  const int64_t* pairs;   // [n_pairs] sorted by expert
  const int64_t* begins;  // [n_experts + 1] into pairs
};

Grouped group_by_expert(const View<const int32_t, 2>& experts, int64_t n_experts,
                        Scratch& scratch) {
  const int64_t n_pairs = experts.size();
  const int64_t top_k = experts[1];
  auto* pairs = scratch.take<int64_t>(n_pairs);
  auto* begins = scratch.take<int64_t>(n_experts + 1);
  auto* next = scratch.take<int64_t>(n_experts);
  std::fill_n(begins, n_experts + 1, 0);
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const int64_t expert = experts(pair / top_k, pair % top_k);
    CHECK(0 <= expert && expert < n_experts);
    ++begins[expert + 1];
  }
  for (int64_t e = 0; e < n_experts; ++e) begins[e + 1] += begins[e];
  std::copy_n(begins, n_experts, next);
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    pairs[next[experts(pair / top_k, pair % top_k)]++] = pair;
  }
  return {pairs, begins};
}

// One expert that every token chose.
Grouped all_to_one(int64_t n_tokens, Scratch& scratch) {
  auto* pairs = scratch.take<int64_t>(n_tokens);
  auto* begins = scratch.take<int64_t>(2);
  for (int64_t token = 0; token < n_tokens; ++token) pairs[token] = token;
  begins[0] = 0;
  begins[1] = n_tokens;
  return {pairs, begins};
}

// Experts of one shape and format, and what the workers of one moe_experts share of their work.
// Arrays of pairs are in grouped order.
struct Part {
  std::span<const ops::ExpertWeights> experts;
  Grouped grouped;
  int64_t hidden, inner, n_slots, n_pairs;
  Activation activation;
  float* x;        // [n_tokens, padded hidden] as the products see it
  float* gated;    // [n_pairs, padded inner] silu(gate) * up
  float* down;     // [n_pairs, hidden] before rounding
  int64_t* place;  // [n_pairs] of a pair, in grouped order
};

Part make_part(const ops::MoeExperts& args, std::span<const ops::ExpertWeights> experts,
               const Grouped& grouped, int64_t n_slots, Scratch& scratch) {
  const WeightMatrix& gate = experts.front().gate;
  Part part{
      .experts = experts,
      .grouped = grouped,
      .hidden = gate.n_in,
      .inner = gate.n_out,
      .n_slots = n_slots,
      .n_pairs = n_slots * args.out[0],
      .activation = gate.format == WeightFormat::fp8_block128 ? args.activation : Activation::bf16};
  part.x = scratch.take<float>(args.out[0] * padded(part.hidden));
  part.gated = scratch.take<float>(part.n_pairs * padded(part.inner));
  part.down = scratch.take<float>(part.n_pairs * part.hidden);
  part.place = scratch.take<int64_t>(part.n_pairs);
  for (int64_t t = 0; t < args.out[0]; ++t) {
    load_activation(args.x.row(t).data, part.hidden, part.activation,
                    part.x + t * padded(part.hidden));
  }
  for (int64_t i = 0; i < part.n_pairs; ++i) part.place[grouped.pairs[i]] = i;
  return part;
}

// Calls body(expert, its range of grouped pairs) for every expert that a token chose, with at most
// `at_once` pairs a time.
template <class Body>
void each_expert(const Part& part, int64_t at_once, const Body& body) {
  for (size_t e = 0; e < part.experts.size(); ++e) {
    const int64_t end = part.grouped.begins[e + 1];
    for (int64_t begin = part.grouped.begins[e]; begin < end; begin += at_once) {
      body(part.experts[e], Share{begin, std::min(begin + at_once, end)});
    }
  }
}

// gated = silu(gate x) * (up x) for some of the inner rows of every expert.
void run_gates(const Part& part, Share rows, Scratch& scratch) {
  const int64_t at_once = tokens_at_once(part.hidden);
  const int64_t n_rows = rows.end - rows.begin;
  const float** x = scratch.take<const float*>(at_once);
  float* gate = scratch.take<float>(at_once * n_rows);
  float* up = scratch.take<float>(at_once * n_rows);
  each_expert(part, at_once, [&](const ops::ExpertWeights& expert, Share pairs) {
    const int64_t n = pairs.end - pairs.begin;
    for (int64_t i = 0; i < n; ++i) {
      x[i] = part.x + part.grouped.pairs[pairs.begin + i] / part.n_slots * padded(part.hidden);
    }
    multiply({&expert.gate, rows, x, n, gate, n_rows}, scratch);
    multiply({&expert.up, rows, x, n, up, n_rows}, scratch);
    for (int64_t i = 0; i < n; ++i) {
      silu_mul_row(gate + i * n_rows, up + i * n_rows, n_rows,
                   part.gated + (pairs.begin + i) * padded(part.inner) + rows.begin);
    }
  });
}

void round_gated(const Part& part) {
  for (int64_t i = 0; i < part.n_pairs; ++i) {
    float* row = part.gated + i * padded(part.inner);
    std::fill(row + part.inner, row + padded(part.inner), 0.0F);
    round_activation(row, part.inner, part.activation);
  }
}

// Some of the outputs of every expert.
void run_downs(const Part& part, Share rows, Scratch& scratch) {
  const int64_t at_once = tokens_at_once(part.inner);
  const float** x = scratch.take<const float*>(at_once);
  each_expert(part, at_once, [&](const ops::ExpertWeights& expert, Share pairs) {
    const int64_t n = pairs.end - pairs.begin;
    for (int64_t i = 0; i < n; ++i) x[i] = part.gated + (pairs.begin + i) * padded(part.inner);
    float* out = part.down + pairs.begin * part.hidden + rows.begin;
    multiply({&expert.down, rows, x, n, out, part.hidden}, scratch);
  });
}

// The same outputs of every token: slots are added in order of k, then the shared expert.
void add_slots(const ops::MoeExperts& args, std::span<const Part> parts, Share rows,
               Scratch& scratch) {
  const int64_t n_rows = rows.end - rows.begin;
  float* sum = scratch.take<float>(n_rows);
  for (int64_t token = 0; token < args.out[0]; ++token) {
    std::fill_n(sum, n_rows, 0.0F);
    for (const Part& part : parts) {
      const bool is_routed = &part == &parts.front();
      for (int64_t k = 0; k < part.n_slots; ++k) {
        const float* y = part.down + part.place[token * part.n_slots + k] * part.hidden;
        add_weighted_row(y + rows.begin, is_routed ? args.weights(token, k) : 1.0F, n_rows, sum);
      }
    }
    float_to_bf16(sum, n_rows, args.out.row(token).data + rows.begin);
  }
}

// At most kMixtureTokens tokens: bounds the memory between the two products.
constexpr int64_t kMixtureTokens = 512;

void run_mixture(Workers& workers, const ops::MoeExperts& args) {
  constexpr int64_t kRowUnit = 4;
  const auto& bank = static_cast<const RawBank&>(*args.bank);
  Scratch& scratch = workers.shared();
  scratch.reset();
  const Grouped grouped = group_by_expert(args.experts, bank.shape().n_experts, scratch);
  std::vector<Part> parts{make_part(args, bank.routed(), grouped, args.experts[1], scratch)};
  if (!bank.shared().empty()) {
    const Grouped all = all_to_one(args.out[0], scratch);
    parts.push_back(make_part(args, bank.shared(), all, 1, scratch));
  }
  int64_t multiply_adds = 0;
  for (const Part& part : parts) multiply_adds += part.n_pairs * part.hidden * part.inner;
  const int n_workers = workers.count_for(multiply_adds);
  workers.each(n_workers, [&](int worker, Scratch& own) {
    for (const Part& part : parts) {
      run_gates(part, share_of(worker, n_workers, part.inner, kRowUnit), own);
    }
  });
  for (const Part& part : parts) round_gated(part);
  workers.each(n_workers, [&](int worker, Scratch& own) {
    const Share rows = share_of(worker, n_workers, args.out[1], kRowUnit);
    for (const Part& part : parts) run_downs(part, rows, own);
    add_slots(args, parts, rows, own);
  });
}

void route(Workers& workers, const ops::MoeExperts& args) {
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    for (int64_t token = worker; token < args.scores[0]; token += workers.count()) {
      scratch.reset();
      route_token(args, token, scratch);
    }
  });
}

}  // namespace

std::unique_ptr<ops::ExpertBank> keep_experts(const ops::ExpertTable& table) {
  return std::make_unique<RawBank>(table);
}

void moe_experts(Workers& workers, const ops::MoeExperts& args) {
  route(workers, args);
  for (int64_t begin = 0; begin < args.out[0]; begin += kMixtureTokens) {
    run_mixture(workers, args.rows(begin, std::min(kMixtureTokens, args.out[0] - begin)));
  }
}

}  // namespace quire::cpu
