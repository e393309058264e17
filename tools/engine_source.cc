#include "tools/engine_source.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/mapped_file.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;

WeightFormat weight_format(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::bf16:
    case WeightScheme::other:
      return WeightFormat::bf16;
    case WeightScheme::fp8_block128:
      return WeightFormat::fp8_block128;
    case WeightScheme::int4_group:
      return WeightFormat::int4_group;
  }
  CHECK(false);
  return WeightFormat::bf16;
}

// Which weights a page was computed with, as far as config.json tells. The index of this process
// meets no other weights.
Result<std::array<uint8_t, 16>> model_lineage(const std::string& dir) {
  const std::string text = TRY(read_text_file(dir + "/config.json", kConfigBytesMax));
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits(text.data(), text.size()));
  std::array<uint8_t, 16> lineage;
  std::copy_n(bytes.digest, lineage.size(), lineage.begin());
  return lineage;
}

Result<int32_t> pool_pages(const EngineSettings& settings, int32_t context_tokens) {
  const int64_t tokens = settings.kv_tokens > 0 ? settings.kv_tokens
                                                : int64_t{settings.running_requests_max} *
                                                      round_up(context_tokens, kPageTokens);
  const int64_t pages = div_up(tokens, kPageTokens) + 1;  // and the null page
  if (pages > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(format("a KV cache of %lld tokens is past what page ids can name",
                                   static_cast<long long>(tokens)));
  }
  return static_cast<int32_t>(pages);
}

}  // namespace

Result<ModelEngine> make_model_engine(LoadedModel loaded, const EngineSettings& settings) {
  const ModelConfig& model_config = loaded.config;
  const int64_t context =
      settings.context_tokens > 0 ? settings.context_tokens : model_config.positions_max;
  if (context < 2 || context > model_config.positions_max) {
    return invalid_argument(format("context: expected 2 to %lld tokens, found %lld",
                                   static_cast<long long>(model_config.positions_max),
                                   static_cast<long long>(context)));
  }
  ModelEngine out;
  out.config = {.context_tokens = static_cast<int32_t>(context),
                .running_requests_max = settings.running_requests_max,
                .queued_requests_max = settings.queued_requests_max,
                .chunked_prefill_tokens = settings.chunked_prefill_tokens > 0
                                              ? settings.chunked_prefill_tokens
                                              : kPrefillTokensCpu,
                .prefix_cache = settings.prefix_cache,
                .domain = {.model_lineage = TRY(model_lineage(loaded.dir)),
                           .weight_format = weight_format(model_config.weights.scheme),
                           .activation = settings.activation,
                           .kv_format = settings.kv_format},
                .seed = settings.seed};
  out.config.n_pages = TRY(pool_pages(settings, out.config.context_tokens));
  out.config.vocab_size = static_cast<int32_t>(model_config.shape.vocab_size);
  const PlanLimits limits = executor_limits(out.config);
  out.model =
      TRY(loaded.make_model({.tokens_max = limits.tokens_max, .logits_max = limits.rows_max},
                            {.kv_format = settings.kv_format,
                             .activation = settings.activation,
                             .fp8_bits_dropped = settings.fp8_bits_dropped}));
  // Where the host runs ahead of the device, the next step is given before this one's tokens are
  // read, and decode steps are launched as one.
  const bool runs_ahead = loaded.backend->is_asynchronous();
  out.config.overlap = runs_ahead ? Overlap::on : Overlap::off;
  out.executor = TRY(ModelExecutor::make(*loaded.backend, *out.model, limits,
                                         runs_ahead ? RecordSteps::yes : RecordSteps::no));
  out.loaded = std::move(loaded);
  return out;
}

}  // namespace quire
