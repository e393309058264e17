#include "engine/batch.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

namespace {

void fill_sampler(const Sequence& sequence, int32_t vocab_size, SamplerPlan* plan) {
  const SamplingSettings& settings = sequence.request.sampling;
  plan->settings = settings;
  if (settings.needs_context()) {
    const auto prompt_end = sequence.tokens.begin() + sequence.n_prompt;
    plan->prompt.assign(sequence.tokens.begin(), prompt_end);
    for (auto token = prompt_end; token != sequence.tokens.end(); ++token) {
      plan->generated.push_back({.literal = *token});
    }
    if (sequence.next) plan->generated.push_back(*sequence.next);
  }
  if (const std::optional<ToolGrammar>& grammar = sequence.request.grammar) {
    // The grammar knows what was chosen so far, and nothing is under way.
    CHECK(!sequence.next);
    plan->mask.assign(token_mask_words(vocab_size), 0);
    const TokenMask mask = TokenMask(plan->mask).first(token_mask_words(grammar->vocab_size()));
    // An empty mask is passed on as it is: the sampler reports the dead end of that row.
    static_cast<void>(grammar->fill_mask(mask));
  }
}

// The prompt's next token after each of the row's tokens that has one, when they are asked for.
void fill_targets(const Sequence& sequence, StepRow* row) {
  row->targets.clear();
  row->target_tops = sequence.request.prompt_logprobs.value_or(0);
  if (!sequence.wants_scores()) return;
  const int32_t end = std::min(row->first_position + static_cast<int32_t>(row->tokens.size()),
                               sequence.n_prompt - 1);
  for (int32_t i = row->first_position; i < end; ++i) {
    row->targets.push_back(sequence.tokens[static_cast<size_t>(i) + 1]);
  }
}

}  // namespace

void fill_row(const Sequence& sequence, const ScheduledRow& scheduled,
              std::span<const TaggedPage> pages, int32_t vocab_size, StepRow* row) {
  CHECK(sequence.slot.has_value() && scheduled.first == sequence.planned);
  row->request = sequence.id;
  row->nonce = sequence.nonce;
  row->slot = *sequence.slot;
  row->first_position = scheduled.first;
  row->n_logits = scheduled.samples ? 1 : 0;
  row->pages.assign(pages.begin(), pages.end());
  row->committed = sequence.computed;
  row->tokens.clear();
  for (int32_t i = scheduled.first; i < scheduled.first + scheduled.n_tokens; ++i) {
    const bool is_known = i < sequence.n_tokens();
    row->tokens.push_back(is_known ? TokenSource{.literal = sequence.tokens[static_cast<size_t>(i)]}
                                   : *sequence.next);
  }
  row->sampler.prompt.clear();
  row->sampler.generated.clear();
  row->sampler.mask.clear();
  fill_targets(sequence, row);
  if (scheduled.samples) fill_sampler(sequence, vocab_size, &row->sampler);
}

}  // namespace quire
