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
// All arguments are in HOST memory except `logits`. Errors: none; a row whose mask admits no token
// is `dead_end`.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "ops/backend.h"

namespace quire::ops {

struct SamplingSettings {
  float temperature = 1.0F;         // [0, 2]
  float top_p = 1.0F;               // (0, 1]
  float min_p = 0.0F;               // [0, 1]
  int32_t top_k = 0;                // 0: all
  float presence_penalty = 0.0F;    // [-2, 2]
  float frequency_penalty = 0.0F;   // [-2, 2]
  float repetition_penalty = 1.0F;  // (0, 2]
  uint64_t seed = 0;
  int32_t top_logprobs = 0;  // [0, 20]
  std::vector<std::pair<Token, float>> logit_bias;

  bool needs_context() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

struct SampleRow {
  const SamplingSettings* settings = nullptr;
  uint64_t position = 0;             // of the token that is chosen, in its sequence: the counter
  std::span<const Token> prompt;     // for the repetition penalty; may be empty
  std::span<const Token> generated;  // for all penalties; may be empty
  std::span<const uint64_t> mask;    // bit t of word t / 64: token t is allowed; empty: all are
};

enum class SampleVerdict : uint8_t { ok, bad_logits, dead_end };

struct SampledToken {
  SampleVerdict verdict = SampleVerdict::ok;
  Token token = -1;
  float logprob = 0;
  // `top_logprobs` of them, descending; fewer where fewer tokens are admitted.
  std::vector<std::pair<Token, float>> top;
};

struct Sample {
  std::span<SampledToken> out;      // [n], host
  View<const float, 2> logits;      // [n, vocab]
  std::span<const SampleRow> rows;  // [n], host
};

void sample(Backend& backend, const Sample& args);

}  // namespace quire::ops
