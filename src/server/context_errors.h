// The errors of requests that are longer than the context; each names both numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/openai_error.h"
#include "server/served_model.h"

namespace quire {

// The prompt alone leaves no room for an answer.
ApiError prompt_too_long_error(const ServedModel& model, int64_t prompt_tokens,
                               std::string_view field);
// The prompt and the answer that was asked for do not fit together.
ApiError request_too_long_error(const ServedModel& model, int64_t prompt_tokens,
                                int64_t answer_tokens, std::string_view field);
// Text of so many bytes cannot fit whatever its tokens are: nothing has to be tokenized to know.
std::optional<ApiError> hopeless_text_error(const ServedModel& model, size_t bytes,
                                            std::string_view field);

}  // namespace quire
