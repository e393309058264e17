#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

float score_of(const ops::MlaPrefillAttention& args, int64_t token, int64_t head, int64_t j) {
  float sum = 0;
  for (int64_t d = 0; d < args.q_nope[2]; ++d) {
    sum += to_float(args.q_nope(token, head, d)) * to_float(args.k_nope(j, head, d));
  }
  for (int64_t r = 0; r < args.q_rope[2]; ++r) {
    sum += to_float(args.q_rope(token, head, r)) * to_float(args.k_rope(j, r));
  }
  return sum * args.scale;
}

void attend(const ops::MlaPrefillAttention& args, int64_t token, int64_t head, Scratch& scratch) {
  const int64_t n = token + 1;
  const int64_t v_dim = args.out[2];
  float* weights = scratch.take<float>(n);
  float* sum = scratch.take<float>(v_dim);
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < n; ++j) {
    weights[j] = score_of(args, token, head, j);
    largest = std::max(largest, weights[j]);
  }
  float total = 0;
  std::fill_n(sum, v_dim, 0.0F);
  for (int64_t j = 0; j < n; ++j) {
    const float weight = std::exp(weights[j] - largest);
    total += weight;
    for (int64_t v = 0; v < v_dim; ++v) sum[v] += weight * to_float(args.v(j, head, v));
  }
  for (int64_t v = 0; v < v_dim; ++v) args.out(token, head, v) = to_bf16(sum[v] / total);
  if (args.lse.data != nullptr) args.lse(token, head) = largest + std::log(total);
}

}  // namespace

// The plain form: no engine path on the CPU takes it (ops/mla_prefill_attention.h).
void mla_prefill_attention(Workers& workers, const ops::MlaPrefillAttention& args) {
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    const int64_t n = args.out[0] * args.out[1];
    for (int64_t i = worker; i < n; i += workers.count()) {
      scratch.reset();
      attend(args, i / args.out[1], i % args.out[1], scratch);
    }
  });
}

}  // namespace quire::cpu
