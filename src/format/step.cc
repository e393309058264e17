#include "format/step.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace quire {

namespace {

// Feeds values to the hash in the order that docs/formats/step.md gives. Gathered in blocks: a plan
// is thousands of values of a few bytes.
class PlanHasher {
 public:
  PlanHasher() { XXH3_64bits_reset(&state_); }

  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) {
    if (used_ + sizeof(value) > block_.size()) flush();
    std::memcpy(block_.data() + used_, &value, sizeof(value));
    used_ += sizeof(value);
  }

  template <class T>
  void add(const std::vector<T>& values) {
    add(static_cast<uint64_t>(values.size()));
    for (const T& value : values) add(value);
  }

  void add(const std::pair<Token, float>& bias) {
    add(bias.first);
    add(bias.second);
  }
  void add(const TokenSource& source) {
    add(source.literal);
    add(source.ticket ? source.ticket->value : uint64_t{0});
    add(source.row);
    add(source.index);
  }
  void add(const TaggedPage& page) {
    add(page.page.value);
    add(page.tag);
  }
  void add(const SamplerPlan& sampler) {
    add(sampler.settings.temperature);
    add(sampler.settings.top_p);
    add(sampler.settings.min_p);
    add(sampler.settings.top_k);
    add(sampler.settings.presence_penalty);
    add(sampler.settings.frequency_penalty);
    add(sampler.settings.repetition_penalty);
    add(sampler.settings.seed);
    add(sampler.settings.top_logprobs);
    add(sampler.settings.logit_bias);
    add(sampler.prompt);
    add(sampler.generated);
    add(sampler.mask);
  }
  void add(const StepRow& row) {
    add(row.request.value);
    add(row.nonce);
    add(row.slot.value);
    add(row.first_position);
    add(row.tokens);
    add(row.n_logits);
    add(row.sampler);
    add(row.targets);
    add(row.target_tops);
    add(row.pages);
    add(row.committed);
  }

  uint64_t digest() {
    flush();
    return XXH3_64bits_digest(&state_);
  }

 private:
  void flush() {
    XXH3_64bits_update(&state_, block_.data(), used_);
    used_ = 0;
  }

  XXH3_state_t state_;
  std::array<std::byte, 4096> block_;
  size_t used_ = 0;
};

}  // namespace

uint64_t hash_plan(const StepPlan& plan) {
  PlanHasher hasher;
  hasher.add(plan.step);
  hasher.add(plan.rows);
  return hasher.digest();
}

StepHeader make_header(const StepPlan& plan) {
  StepHeader header{.step = plan.step, .n_rows = plan.rows.size(), .hash = hash_plan(plan)};
  for (const StepRow& row : plan.rows) header.nonce_sum += row.nonce;
  return header;
}

}  // namespace quire
