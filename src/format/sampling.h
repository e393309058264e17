// SamplingSettings: how a token is chosen from its logits, as a request asks for it. What each
// does, and in which order, is ops/sample.h's to say.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace quire {

inline constexpr int32_t kTopLogprobsMax = 20;
inline constexpr int32_t kLogitBiasMax = 1024;  // tokens with a bias, in a row

struct SamplingSettings {
  float temperature = 1.0F;         // [0, 2]
  float top_p = 1.0F;               // (0, 1]
  float min_p = 0.0F;               // [0, 1]
  int32_t top_k = 0;                // 0: all
  float presence_penalty = 0.0F;    // [-2, 2]
  float frequency_penalty = 0.0F;   // [-2, 2]
  float repetition_penalty = 1.0F;  // (0, 2]
  uint64_t seed = 0;
  int32_t top_logprobs = 0;                         // [0, kTopLogprobsMax]
  std::vector<std::pair<Token, float>> logit_bias;  // at most kLogitBiasMax

  bool needs_context() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

}  // namespace quire
