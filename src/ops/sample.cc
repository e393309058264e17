#include "ops/sample.h"

#include <bit>

#include "base/bytes.h"
#include "base/rng.h"

namespace quire::ops {

namespace {

constexpr float kGreedyBelow = 1e-5F;  // temperatures that mean 0 (step 4)

WordSlice append(SamplerWords& words, std::span<const int32_t> tokens) {
  WordSlice slice{.begin = words.used()};
  for (const int32_t token : tokens) words.add(token);
  slice.end = words.used();
  return slice;
}

}  // namespace

void sample(Backend& backend, const Sample& args) {
  const int64_t n_rows = args.logits[0];
  CHECK(args.out[0] == n_rows && args.rows[0] == n_rows && args.logits[1] > 0);
  CHECK(args.step[0] == 1 && args.recent[0] > 0 && args.recent[1] >= n_rows);
  if (n_rows == 0) return;
  backend.sample(args);
}

SamplerRow encode_sampler(const SamplingSettings& settings, const SamplerContext& context,
                          int64_t vocab, SamplerWords& words) {
  CHECK(0 <= settings.top_logprobs && settings.top_logprobs <= kTopLogprobsMax);
  CHECK(settings.logit_bias.size() <= size_t{kLogitBiasMax});
  SamplerRow row{.uniform = counter_uniform(settings.seed, context.position),
                 .temperature = settings.temperature < kGreedyBelow ? 0 : settings.temperature,
                 .top_p = settings.top_p,
                 .min_p = settings.min_p,
                 .top_k = settings.top_k,
                 .presence_penalty = settings.presence_penalty,
                 .frequency_penalty = settings.frequency_penalty,
                 .repetition_penalty = settings.repetition_penalty,
                 .top_logprobs = settings.top_logprobs};
  row.bias.begin = words.used();
  for (const auto& [token, bias] : settings.logit_bias) {
    words.add(token);
    words.add(std::bit_cast<int32_t>(bias));
  }
  row.bias.end = words.used();
  if (settings.needs_context()) {
    row.prompt = append(words, context.prompt);
    row.generated = append(words, context.generated);
  }
  if (!context.mask.empty()) {
    const auto n_words = static_cast<size_t>(div_up(vocab, 64));
    CHECK(context.mask.size() >= n_words);
    row.mask.begin = words.used();
    for (const uint64_t word : context.mask.first(n_words)) {
      words.add(static_cast<int32_t>(static_cast<uint32_t>(word)));
      words.add(static_cast<int32_t>(static_cast<uint32_t>(word >> 32)));
    }
    row.mask.end = words.used();
  }
  return row;
}

SamplerRow encode_score(Token given, int32_t top_logprobs) {
  CHECK(given >= 0 && 0 <= top_logprobs && top_logprobs <= kTopLogprobsMax);
  return {.temperature = 0, .top_logprobs = top_logprobs, .given = given};
}

int64_t sampler_words_max(int64_t context_tokens, int64_t vocab) {
  return 2 * int64_t{kLogitBiasMax} + context_tokens + 2 * div_up(vocab, 64);
}

SampledToken decode_sampled(const SampledRow& row) {
  SampledToken out{.verdict = static_cast<SampleVerdict>(row.verdict),
                   .token = row.token,
                   .logprob = row.logprob};
  for (int32_t i = 0; i < row.n_top; ++i) {
    out.top.emplace_back(row.top_tokens[i], row.top_logprobs[i]);
  }
  return out;
}

Result<SampledToken> sample_now(Backend& backend, View<float, 2> logits,
                                const SamplingSettings& settings, const SamplerContext& context) {
  const auto n_context = static_cast<int64_t>(context.prompt.size() + context.generated.size());
  std::vector<int32_t> words(static_cast<size_t>(sampler_words_max(n_context, logits[1])));
  SamplerWords used(words);
  const SamplerRow row = encode_sampler(settings, context, logits[1], used);

  const auto put = [&](const auto* data, size_t n) -> Result<Buffer> {
    Buffer buffer = TRY(allocate(backend, static_cast<int64_t>(n * sizeof(*data)), "sampling"));
    backend.copy_in(buffer.data(), std::as_bytes(std::span(data, n)));
    return buffer;
  };
  const uint64_t step = 0;
  const Token none = -1;
  const SampledRow blank;
  const Buffer rows = TRY(put(&row, 1));
  const Buffer lists = TRY(put(words.data(), words.size()));
  const Buffer steps = TRY(put(&step, 1));
  const Buffer recent = TRY(put(&none, 1));
  const Buffer out = TRY(put(&blank, 1));
  sample(backend, {.out = out.view<SampledRow>(int64_t{1}),
                   .logits = logits,
                   .rows = rows.view<const SamplerRow>(int64_t{1}),
                   .words = lists.view<const int32_t>(static_cast<int64_t>(words.size())),
                   .recent = recent.view<int32_t>(int64_t{1}, int64_t{1}),
                   .step = steps.view<const uint64_t>(int64_t{1})});
  SampledRow sampled;
  backend.copy_out(std::as_writable_bytes(std::span(&sampled, 1)), out.data());
  return decode_sampled(sampled);
}

}  // namespace quire::ops
