// Chooses a token a row from its logits, by a pure function of the logits, the row's settings and a
// counter-based random number: nothing depends on the batch or on earlier calls.
//
// In this order, values in float32, sums over the vocabulary in float64 (as SGLang and OpenAI
// document it):
//   1. a row with a NaN or an infinite logit is `bad`: its token is -1 and the others go on;
//   2. logit_bias is added; tokens outside `mask` get -inf;
//   3. repetition penalty r on every token of `context` (prompt and output): l > 0 ? l / r : l * r;
//      then l -= presence * (count > 0) + frequency * count, count in `generated`;
//   4. temperature 0 (or below 1e-5): the largest logit, ties to the lower id. Else l is divided
//      by the temperature, and softmax; of the tokens in descending order (ties to the lower id)
//      the first top_k, of these the shortest prefix whose probability reaches top_p, of these the
//      ones with p >= min_p * p_max. p is of the full softmax throughout: nothing is renormalised
//      between the three. The draw is the inverse of the cumulated probability of what is left, in
//      order of id, at counter_uniform(seed, position);
//   5. log-probabilities are of the distribution of step 3 before temperature and truncation
//      (log_softmax), for the chosen token and the `top_logprobs` largest.
// A row that is given its token (`encode_score`) is scored: step 4 is left out, the rest holds.
// A row whose mask admits no token is `dead_end`. Errors: none.
//
// Rows come as SamplerRow (format/step_inputs.h), encoded from settings by `encode_sampler`. All
// views are in the backend's memory: nothing waits, and the answer stays where the next step finds
// it. `sample_now` is the same for one caller who wants the answer at once.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "format/sampling.h"
#include "format/step_inputs.h"
#include "ops/backend.h"

namespace quire::ops {

enum class SampleVerdict : uint8_t { ok, bad_logits, dead_end };

// A row's answer, as a backend writes it.
struct SampledRow {
  int32_t verdict = 0;  // SampleVerdict
  int32_t token = -1;
  float logprob = 0;
  // `top_logprobs` of them, descending; fewer where fewer tokens are admitted.
  int32_t n_top = 0;
  int32_t top_tokens[kTopLogprobsMax] = {};
  float top_logprobs[kTopLogprobsMax] = {};
};

struct Sample {
  View<SampledRow, 1> out;         // [n]
  View<float, 2> logits;           // [n, vocab]; undefined afterwards
  View<const SamplerRow, 1> rows;  // [n]
  View<const int32_t, 1> words;    // what the rows' slices are of
  View<int32_t, 2> recent;         // [k, >= n] kept tokens: read by reference, and ...
  View<const uint64_t, 1> step;    // [1] ... recent[step % k, i] = out[i].token
};

void sample(Backend& backend, const Sample& args);

// Lists of the rows of a step, one after another in words that the caller owns.
class SamplerWords {
 public:
  explicit SamplerWords(std::span<int32_t> words) : words_(words) {}
  // What does not fit is a programmer error.
  void add(int32_t word) {
    CHECK(used_ < static_cast<int32_t>(words_.size()));
    words_[static_cast<size_t>(used_++)] = word;
  }
  int32_t used() const { return used_; }

 private:
  std::span<int32_t> words_;
  int32_t used_ = 0;
};

// What a row needs beside its settings.
struct SamplerContext {
  uint64_t position = 0;               // of the token that is chosen, in its sequence: the counter
  std::span<const Token> prompt;       // for the repetition penalty; may be empty
  std::span<const int32_t> generated;  // for all penalties: tokens, or references to recent ones
  std::span<const uint64_t> mask;      // bit t of word t / 64: token t is allowed; empty: all are
};

SamplerRow encode_sampler(const SamplingSettings& settings, const SamplerContext& context,
                          int64_t vocab, SamplerWords& words);

// The row that scores `given` by the logits as they are, beside their `top_logprobs` largest.
SamplerRow encode_score(Token given, int32_t top_logprobs);

// Words that a row of `context_tokens` may take at most.
int64_t sampler_words_max(int64_t context_tokens, int64_t vocab);

struct SampledToken {
  SampleVerdict verdict = SampleVerdict::ok;
  Token token = -1;
  float logprob = 0;
  std::vector<std::pair<Token, float>> top;
};

SampledToken decode_sampled(const SampledRow& row);

// Samples one row of `logits` and waits. Allocates: for tests and tools, not for a step.
Result<SampledToken> sample_now(Backend& backend, View<float, 2> logits,
                                const SamplingSettings& settings, const SamplerContext& context);

}  // namespace quire::ops
