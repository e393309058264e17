#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
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

bool is_empty(const WordSlice& slice) { return slice.begin == slice.end; }

// The rows of one call: what their slices and references mean.
struct Lists {
  const ops::Sample& args;

  std::span<const int32_t> of(const WordSlice& slice) const {
    return {args.words.data + slice.begin, static_cast<size_t>(slice.end - slice.begin)};
  }
  Token token(int32_t word) const {
    return word >= 0 ? word : args.recent.data[recent_place(word)];
  }
};

bool is_allowed(std::span<const int32_t> mask, int64_t token) {
  const auto word = static_cast<uint32_t>(mask[static_cast<size_t>(token / 32)]);
  return ((word >> (token % 32)) & 1U) != 0;
}

bool in_vocab(Token token, int64_t n) { return 0 <= token && token < n; }

// Step 3. Tokens outside the vocabulary are placeholders of a prompt, and have no logit.
void penalise(const SamplerRow& row, const Lists& lists, Scratch& scratch, float* logits,
              int64_t n) {
  auto* count = scratch.take<int32_t>(n);
  auto* repeated = scratch.take<uint8_t>(n);
  std::fill_n(count, n, 0);
  std::fill_n(repeated, n, uint8_t{0});
  const auto repeat = [&](Token token) {
    if (!in_vocab(token, n) || repeated[token] != 0) return;
    repeated[token] = 1;
    float& logit = logits[token];
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  };
  for (const int32_t word : lists.of(row.prompt)) repeat(lists.token(word));
  for (const int32_t word : lists.of(row.generated)) {
    const Token token = lists.token(word);
    repeat(token);
    if (in_vocab(token, n)) ++count[token];
  }
  for (const int32_t word : lists.of(row.generated)) {
    const Token token = lists.token(word);
    if (!in_vocab(token, n) || count[token] == 0) continue;
    logits[token] -=
        row.presence_penalty + row.frequency_penalty * static_cast<float>(count[token]);
    count[token] = 0;  // once a token
  }
}

// Steps 2 and 3, in place.
void adjust(const SamplerRow& row, const Lists& lists, Scratch& scratch, float* logits, int64_t n) {
  const std::span<const int32_t> biases = lists.of(row.bias);
  for (size_t i = 0; i + 1 < biases.size(); i += 2) {
    if (in_vocab(biases[i], n)) logits[biases[i]] += std::bit_cast<float>(biases[i + 1]);
  }
  if (!is_empty(row.mask)) {
    const std::span<const int32_t> mask = lists.of(row.mask);
    for (int64_t i = 0; i < n; ++i) {
      if (!is_allowed(mask, i)) logits[i] = kMinusInfinity;
    }
  }
  if (!is_empty(row.prompt) || !is_empty(row.generated)) {
    penalise(row, lists, scratch, logits, n);
  }
}

// The tokens that are left to draw from.
struct Kept {
  int32_t* ids;
  int64_t count;
};

// The length of the kept prefix, if it ends within the first `sorted` of `order`; else -1.
int64_t prefix_length(const SamplerRow& settings, const float* weight, const int32_t* order,
                      int64_t sorted, double total) {
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
float least_weight(const SamplerRow& settings, int64_t n, double total) {
  const double share = settings.top_p < 1 ? (1 - double{settings.top_p}) * total : 0;
  return std::max(settings.min_p, static_cast<float>(0.5 * share / static_cast<double>(n)));
}

Kept truncate(const SamplerRow& settings, const float* weight, int64_t n, double total,
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

Token draw(const SamplerRow& row, const float* logits, int64_t n, float most, Scratch& scratch) {
  float* weight = scratch.take<float>(n);
  const double total = exp_row(logits, n, most, 1.0F / row.temperature, weight);
  const Kept kept = truncate(row, weight, n, total, scratch);
  double kept_total = 0;
  for (int64_t i = 0; i < kept.count; ++i) {
    kept_total += static_cast<double>(weight[kept.ids[i]]);
  }
  const double target = row.uniform * kept_total;
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

// The row's `top_logprobs` largest admitted tokens with their log-probabilities.
void list_top(const SamplerRow& row, const float* logits, int64_t n, float log_total,
              ops::SampledRow* out) {
  out->n_top = 0;
  for (int64_t i = 0; i < n && row.top_logprobs > 0; ++i) {
    const float value = logits[i];
    const bool is_full = out->n_top == row.top_logprobs;
    if (value == kMinusInfinity || (is_full && value <= out->top_logprobs[out->n_top - 1])) {
      continue;
    }
    if (!is_full) ++out->n_top;
    int32_t place = out->n_top - 1;
    for (; place > 0 && out->top_logprobs[place - 1] < value; --place) {
      out->top_tokens[place] = out->top_tokens[place - 1];
      out->top_logprobs[place] = out->top_logprobs[place - 1];
    }
    out->top_tokens[place] = static_cast<Token>(i);
    out->top_logprobs[place] = value;
  }
  for (int32_t i = 0; i < out->n_top; ++i) out->top_logprobs[i] -= log_total;
}

ops::SampledRow sample_row(const SamplerRow& row, const Lists& lists, float* logits, int64_t n,
                           Scratch& scratch) {
  const auto refused = [](ops::SampleVerdict verdict) {
    return ops::SampledRow{.verdict = static_cast<int32_t>(verdict)};
  };
  if (!all_finite(logits, n)) return refused(ops::SampleVerdict::bad_logits);
  adjust(row, lists, scratch, logits, n);
  const float most = largest(logits, n);
  if (most == kMinusInfinity) return refused(ops::SampleVerdict::dead_end);
  ops::SampledRow out{.verdict = static_cast<int32_t>(ops::SampleVerdict::ok)};
  if (row.given >= 0) {
    out.token = row.given;
  } else if (row.temperature == 0) {
    out.token = first_of(logits, n, most);
  } else {
    out.token = draw(row, logits, n, most, scratch);
  }
  const double total = exp_row(logits, n, most, 1.0F, scratch.take<float>(n));
  const float log_total = most + static_cast<float>(std::log(total));
  out.logprob = logits[out.token] - log_total;
  list_top(row, logits, n, log_total, &out);
  return out;
}

}  // namespace

void sample(Workers& workers, const ops::Sample& args) {
  const int64_t n_rows = args.rows[0];
  const Lists lists{args};
  const View<int32_t, 1> kept =
      args.recent.row(static_cast<int64_t>(args.step(0) % static_cast<uint64_t>(args.recent[0])));
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    for (int64_t row = worker; row < n_rows; row += workers.count()) {
      scratch.reset();
      args.out(row) =
          sample_row(args.rows(row), lists, args.logits.row(row).data, args.logits[1], scratch);
      kept(row) = args.out(row).token;
    }
  });
}

}  // namespace quire::cpu
