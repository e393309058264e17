// The fields of a request that say how tokens are chosen and when an answer ends; the same for
// chat and completions. Ranges are OpenAI's, and SGLang's where OpenAI has no such field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "server/field_reader.h"

namespace quire {

struct SamplingFields {
  SamplingSettings settings;  // without logprobs: those differ between the endpoints
  std::optional<uint64_t> seed;
  int32_t n = 1;
  std::optional<int32_t> max_tokens;
  std::vector<std::string> stops;
  std::vector<Token> stop_tokens;
  bool ignore_eos = false;
};

inline constexpr int64_t kChoicesMax = 16;
inline constexpr size_t kStopsMax = 16;
inline constexpr size_t kStopBytesMax = 256;
inline constexpr size_t kStopTokensMax = 64;

// `vocab_size` is the model's: an id at or above it has no row in the embedding.
// An answer has `tokens_min` tokens at least: 0 where a prompt alone may be asked for.
SamplingFields read_sampling_fields(FieldReader& body, int32_t vocab_size, int32_t tokens_min = 1);

}  // namespace quire
