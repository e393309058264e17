#include "engine/batch.h"

#include "base/check.h"

namespace quire {

namespace {

SamplerPlan make_sampler(const Sequence& sequence, int32_t vocab_size) {
  const ops::SamplingSettings& settings = sequence.request.sampling;
  SamplerPlan plan{.temperature = settings.temperature,
                   .top_p = settings.top_p,
                   .min_p = settings.min_p,
                   .top_k = settings.top_k,
                   .presence_penalty = settings.presence_penalty,
                   .frequency_penalty = settings.frequency_penalty,
                   .repetition_penalty = settings.repetition_penalty,
                   .seed = settings.seed,
                   .top_logprobs = settings.top_logprobs,
                   .logit_bias = settings.logit_bias};
  if (settings.needs_context()) {
    const auto prompt_end = sequence.tokens.begin() + sequence.n_prompt;
    plan.prompt.assign(sequence.tokens.begin(), prompt_end);
    plan.generated.reserve(static_cast<size_t>(sequence.n_generated()));
    for (auto token = prompt_end; token != sequence.tokens.end(); ++token) {
      plan.generated.push_back({.literal = *token});
    }
  }
  if (const std::optional<ToolGrammar>& grammar = sequence.request.grammar) {
    plan.mask.assign(token_mask_words(vocab_size), 0);
    const TokenMask mask = TokenMask(plan.mask).first(token_mask_words(grammar->vocab_size()));
    // An empty mask is passed on as it is: the sampler reports the dead end of that row.
    static_cast<void>(grammar->fill_mask(mask));
  }
  return plan;
}

}  // namespace

StepRow make_row(const Sequence& sequence, const ScheduledRow& scheduled,
                 std::span<const TaggedPage> pages, int32_t vocab_size) {
  CHECK(sequence.slot.has_value() && scheduled.first == sequence.computed);
  StepRow row{.request = sequence.id,
              .nonce = sequence.nonce,
              .slot = *sequence.slot,
              .first_position = scheduled.first,
              .n_logits = scheduled.samples ? 1 : 0,
              .pages = {pages.begin(), pages.end()},
              .committed = sequence.computed};
  row.tokens.reserve(static_cast<size_t>(scheduled.n_tokens));
  for (int32_t i = 0; i < scheduled.n_tokens; ++i) {
    row.tokens.push_back({.literal = sequence.tokens[static_cast<size_t>(scheduled.first + i)]});
  }
  if (scheduled.samples) row.sampler = make_sampler(sequence, vocab_size);
  return row;
}

}  // namespace quire
