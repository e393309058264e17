#include "server/context_errors.h"

#include <cinttypes>

#include "base/text.h"

namespace quire {

namespace {

constexpr std::string_view kCode = "context_length_exceeded";

}  // namespace

ApiError prompt_too_long_error(const ServedModel& model, int64_t prompt_tokens,
                               std::string_view field) {
  return bad_field(kCode, field,
                   format("This model's maximum context length is %d tokens. However, your prompt "
                          "has %" PRId64 " tokens, which leaves none for an answer.",
                          model.context_tokens, prompt_tokens));
}

ApiError request_too_long_error(const ServedModel& model, int64_t prompt_tokens,
                                int64_t answer_tokens, std::string_view field) {
  return bad_field(
      kCode, field,
      format("This model's maximum context length is %d tokens. However, you "
             "requested %" PRId64 " tokens (%" PRId64 " in the prompt, %" PRId64 " in the answer).",
             model.context_tokens, prompt_tokens + answer_tokens, prompt_tokens, answer_tokens));
}

std::optional<ApiError> hopeless_text_error(const ServedModel& model, size_t bytes,
                                            std::string_view field) {
  const size_t tokens_min = bytes / model.tokenizer.vocabulary().token_bytes_max();
  if (tokens_min <= static_cast<size_t>(model.context_tokens)) return std::nullopt;
  return bad_field(kCode, field,
                   format("This model's maximum context length is %d tokens. However, your prompt "
                          "has at least %zu tokens.",
                          model.context_tokens, tokens_min));
}

}  // namespace quire
