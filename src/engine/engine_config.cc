#include "engine/engine_config.h"

#include "base/bytes.h"
#include "base/text.h"

namespace quire {

PlanLimits executor_limits(const EngineConfig& config) {
  return {.n_pages = config.n_pages,
          .page_tokens = config.page_tokens,
          .rows_max = config.running_requests_max,
          .tokens_max = config.chunked_prefill_tokens + config.running_requests_max,
          .pages_max = static_cast<int32_t>(div_up(config.context_tokens, config.page_tokens)),
          .vocab_size = config.vocab_size};
}

StepChecks step_checks(const IntegrityConfig& integrity) {
  if (integrity.writes) return StepChecks::pages_and_writes;
  return integrity.tags ? StepChecks::pages : StepChecks::none;
}

Status check_request(const EngineConfig& config, const GenerateRequest& request) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt == 0) return invalid_argument("the prompt is empty");
  if (request.max_new_tokens < 1) {
    return invalid_argument(
        format("max_new_tokens: expected at least 1, found %d", request.max_new_tokens));
  }
  if (n_prompt + request.max_new_tokens > config.context_tokens) {
    return invalid_argument(
        format("the context holds %d tokens: the prompt has %lld, and %d more "
               "were asked for",
               config.context_tokens, static_cast<long long>(n_prompt), request.max_new_tokens));
  }
  // The last token is chosen, never computed.
  const int64_t pages = div_up(n_prompt + request.max_new_tokens - 1, config.page_tokens);
  if (pages > config.n_pages - 1) {
    return invalid_argument(format("the request needs %lld pages of KV cache; there are %d",
                                   static_cast<long long>(pages), config.n_pages - 1));
  }
  for (const Token token : request.prompt) {
    if (token < 0 || token >= config.vocab_size) {
      return invalid_argument(
          format("prompt token %d: expected 0 to %d", token, config.vocab_size - 1));
    }
  }
  if (request.sampling.logit_bias.size() > size_t{kLogitBiasMax}) {
    return invalid_argument(format("logit_bias: expected at most %d entries, found %zu",
                                   kLogitBiasMax, request.sampling.logit_bias.size()));
  }
  if (request.prompt_logprobs &&
      (*request.prompt_logprobs < 0 || *request.prompt_logprobs > kTopLogprobsMax)) {
    return invalid_argument(format("prompt_logprobs: expected 0 to %d, found %d", kTopLogprobsMax,
                                   *request.prompt_logprobs));
  }
  if (request.grammar && request.grammar->vocab_size() > config.vocab_size) {
    return invalid_argument(format("the grammar knows %d tokens, the model %d",
                                   request.grammar->vocab_size(), config.vocab_size));
  }
  return {};
}

}  // namespace quire
