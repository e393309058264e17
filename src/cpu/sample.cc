#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5F;     // temperatures that mean 0 (ops/sample.h, step 4)
constexpr int64_t kFirstCandidates = 64;  // sorted at first; four times as many each time it is
                                          // not enough

// The order of step 4: larger first, ties to the lower id.
struct Descending {
  const float* values;
  bool operator()(int32_t a, int32_t b) const {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  }
};

bool all_finite(const float* x, int64_t n) {
  constexpr uint32_t kExponent = 0x7f800000U;  // all ones: NaN or infinity
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

// The first of the largest, which `largest` has found.
Token first_of(const float* x, int64_t n, float value) {
  return static_cast<Token>(std::find(x, x + n, value) - x);
}

bool changes_logits(const ops::SampleRow& row) {
  return !row.settings->logit_bias.empty() || !row.mask.empty() || row.settings->needs_context();
}

bool in_vocab(Token token, int64_t n) { return 0 <= token && token < n; }

// Step 3. Tokens outside the vocabulary are placeholders of a prompt, and have no logit.
void penalise(const ops::SampleRow& row, Scratch& scratch, float* logits, int64_t n) {
  const ops::SamplingSettings& settings = *row.settings;
  auto* count = scratch.take<int32_t>(n);
  auto* repeated = scratch.take<uint8_t>(n);
  std::fill_n(count, n, 0);
  std::fill_n(repeated, n, uint8_t{0});
  const auto repeat = [&](Token token) {
    if (!in_vocab(token, n) || repeated[token] != 0) return;
    repeated[token] = 1;
    float& logit = logits[token];
    logit = logit > 0 ? logit / settings.repetition_penalty : logit * settings.repetition_penalty;
  };
  for (const Token token : row.prompt) repeat(token);
  for (const Token token : row.generated) {
    repeat(token);
    if (in_vocab(token, n)) ++count[token];
  }
  for (const Token token : row.generated) {
    if (!in_vocab(token, n) || count[token] == 0) continue;
    logits[token] -=
        settings.presence_penalty + settings.frequency_penalty * static_cast<float>(count[token]);
    count[token] = 0;  // once a token
  }
}

// Steps 2 and 3 on a copy.
const float* adjusted(const ops::SampleRow& row, Scratch& scratch, const float* raw, int64_t n) {
  if (!changes_logits(row)) return raw;
  float* logits = scratch.take<float>(n);
  std::copy_n(raw, n, logits);
  for (const auto& [token, bias] : row.settings->logit_bias) {
    if (in_vocab(token, n)) logits[token] += bias;
  }
  if (!row.mask.empty()) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t word = row.mask[static_cast<size_t>(i / 64)];
      if (((word >> (i % 64)) & 1U) == 0) logits[i] = kMinusInfinity;
    }
  }
  if (row.settings->needs_context()) penalise(row, scratch, logits, n);
  return logits;
}

// The tokens that are left to draw from.
struct Kept {
  int32_t* ids;
  int64_t count;
};

// The length of the kept prefix, if it ends within the first `sorted` of `order`; else -1.
int64_t prefix_length(const ops::SamplingSettings& settings, const float* weight,
                      const int32_t* order, int64_t sorted, double total) {
  double before = 0;
  for (int64_t i = 0; i < sorted; ++i) {
    const bool enough_k = settings.top_k > 0 && i >= settings.top_k;
    const bool enough_p = settings.top_p < 1 && before >= double{settings.top_p} * total;
    if (i > 0 && (enough_k || enough_p)) return i;
    before += static_cast<double>(weight[order[i]]);
  }
  return -1;
}

// No token that weighs less can be kept. The shortest prefix that reaches top_p leaves out at most
// 1 - top_p of the total, and so do all tokens below (1 - top_p) * total / n together; half of it
// is far beyond what rounding could do.
float least_weight(const ops::SamplingSettings& settings, int64_t n, double total) {
  const double share = settings.top_p < 1 ? (1 - double{settings.top_p}) * total : 0;
  return std::max(settings.min_p, static_cast<float>(0.5 * share / static_cast<double>(n)));
}

Kept truncate(const ops::SamplingSettings& settings, const float* weight, int64_t n, double total,
              Scratch& scratch) {
  auto* order = scratch.take<int32_t>(n);
  const float least = least_weight(settings, n, total);
  int64_t candidates = 0;
  for (int64_t i = 0; i < n; ++i) {
    order[candidates] = static_cast<int32_t>(i);
    candidates += static_cast<int64_t>(weight[i] >= least);
  }
  if (settings.top_k <= 0 && settings.top_p >= 1) return {order, candidates};
  int64_t sorted = 0;
  int64_t kept = -1;
  for (int64_t want = kFirstCandidates; kept < 0 && sorted < candidates; want *= 4) {
    const int64_t end = std::min(want, candidates);
    if (end < candidates) {
      std::nth_element(order + sorted, order + end, order + candidates, Descending{weight});
    }
    std::sort(order + sorted, order + end, Descending{weight});
    sorted = end;
    kept = prefix_length(settings, weight, order, sorted, total);
  }
  if (kept < 0) kept = candidates;
  std::sort(order, order + kept);  // the draw goes by id
  return {order, kept};
}

Token draw(const ops::SampleRow& row, const float* logits, int64_t n, float most,
           Scratch& scratch) {
  const ops::SamplingSettings& settings = *row.settings;
  float* weight = scratch.take<float>(n);
  const double total = exp_row(logits, n, most, 1.0F / settings.temperature, weight);
  const Kept kept = truncate(settings, weight, n, total, scratch);
  double kept_total = 0;
  for (int64_t i = 0; i < kept.count; ++i) {
    kept_total += static_cast<double>(weight[kept.ids[i]]);
  }
  const double target = counter_uniform(settings.seed, row.position) * kept_total;
  double cumulated = 0;
  Token last = -1;
  for (int64_t i = 0; i < kept.count; ++i) {
    const float w = weight[kept.ids[i]];
    if (w <= 0) continue;
    cumulated += static_cast<double>(w);
    last = kept.ids[i];
    if (cumulated > target) break;
  }
  return last;
}

// The `count` largest admitted tokens with their log-probabilities.
void list_top(const float* logits, int64_t n, int32_t count, float log_total,
              std::vector<std::pair<Token, float>>* top) {
  top->clear();
  for (int64_t i = 0; i < n && count > 0; ++i) {
    const auto token = static_cast<Token>(i);
    const bool is_full = top->size() == static_cast<size_t>(count);
    if (logits[i] == kMinusInfinity || (is_full && logits[i] <= top->back().second)) continue;
    if (is_full) top->pop_back();
    const auto place =
        std::find_if(top->begin(), top->end(), [&](const auto& t) { return t.second < logits[i]; });
    top->insert(place, {token, logits[i]});
  }
  for (auto& [token, value] : *top) value -= log_total;
}

ops::SampledToken sample_row(const ops::SampleRow& row, const float* raw, int64_t n,
                             Scratch& scratch) {
  ops::SampledToken out;
  if (!all_finite(raw, n)) {
    out.verdict = ops::SampleVerdict::bad_logits;
    return out;
  }
  const float* logits = adjusted(row, scratch, raw, n);
  const float most = largest(logits, n);
  if (most == kMinusInfinity) {
    out.verdict = ops::SampleVerdict::dead_end;
    return out;
  }
  const bool is_greedy = row.settings->temperature < kGreedyBelow;
  out.token = is_greedy ? first_of(logits, n, most) : draw(row, logits, n, most, scratch);
  const double total = exp_row(logits, n, most, 1.0F, scratch.take<float>(n));
  const float log_total = most + static_cast<float>(std::log(total));
  out.logprob = logits[out.token] - log_total;
  list_top(logits, n, row.settings->top_logprobs, log_total, &out.top);
  return out;
}

}  // namespace

void sample(Workers& workers, const ops::Sample& args) {
  const auto n_rows = static_cast<int64_t>(args.rows.size());
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    for (int64_t row = worker; row < n_rows; row += workers.count()) {
      scratch.reset();
      const auto i = static_cast<size_t>(row);
      args.out[i] = sample_row(args.rows[i], args.logits.row(row).data, args.logits[1], scratch);
    }
  });
}

}  // namespace quire::cpu
