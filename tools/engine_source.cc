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
#include "model/warm_up.h"

namespace quire {

namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;

WeightFormat weight_format(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::bf16:
    case WeightScheme::nvfp4:  // decoded while it is loaded
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

// Which weights a page was computed with: the config, every tensor's name, format and sizes, and
// whose part they are. Two sets of values under one index are told apart by their folder's config.
Result<std::array<uint8_t, 16>> model_lineage(const LoadedModel& loaded) {
  std::string text = TRY(read_text_file(loaded.dir + "/config.json", kConfigBytesMax));
  text += format("\n%s rank %lld of %lld\n",
                 loaded.load_format == LoadFormat::dummy ? "dummy" : "files",
                 static_cast<long long>(loaded.partition.rank),
                 static_cast<long long>(loaded.partition.n_ranks));
  for (const CheckpointTensor& tensor : loaded.weights->checkpoint.tensors()) {
    text += tensor.entry.name + " " + describe(tensor.entry) + "\n";
  }
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, XXH3_128bits(text.data(), text.size()));
  std::array<uint8_t, 16> lineage;
  std::copy_n(bytes.digest, lineage.size(), lineage.begin());
  return lineage;
}

// What was asked for: all there is to go by on a host, whose memory nobody can promise.
int64_t pages_asked(const EngineSettings& settings, int32_t context_tokens) {
  const int64_t tokens = settings.kv_tokens > 0 ? settings.kv_tokens
                                                : int64_t{settings.running_requests_max} *
                                                      round_up(context_tokens, kPageTokens);
  return div_up(tokens, kPageTokens);
}

// Pages of the pool, with the null page. Everything else that the backend will hold is there.
Result<int32_t> pool_pages(const EngineSettings& settings, int32_t context_tokens, Backend& backend,
                           const KvPageLayout& layout) {
  int64_t pages = pages_asked(settings, context_tokens);
  if (!backend.reads_host_memory()) {
    const MemoryInfo memory = backend.memory_info();
    const bool takes_all = settings.pool_size == PoolSize::all_there_is && settings.kv_tokens == 0;
    const int64_t pages_wanted = takes_all ? 0 : pages;
    // A pool that cannot hold one request of half the context is of no use to anybody.
    const int64_t useful = div_up(context_tokens, 2 * kPageTokens);
    pages = TRY(pages_in_budget({.total_bytes = memory.total,
                                 .free_bytes = memory.free,
                                 .fraction = settings.mem_fraction,
                                 .page_bytes = layout.page_bytes,
                                 .pages_wanted = pages_wanted},
                                pages_wanted > 0 ? std::min(pages_wanted, useful) : useful));
  }
  if (pages >= std::numeric_limits<int32_t>::max()) {
    return invalid_argument(format("a KV cache of %lld pages is past what page ids can name",
                                   static_cast<long long>(pages)));
  }
  return static_cast<int32_t>(pages + 1);
}

int32_t prefill_tokens(const EngineSettings& settings, const Backend& backend) {
  if (settings.chunked_prefill_tokens > 0) return settings.chunked_prefill_tokens;
  return backend.reads_host_memory() ? kPrefillTokensCpu : kPrefillTokensCuda;
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
                .chunked_prefill_tokens = prefill_tokens(settings, *loaded.backend),
                .prefix_cache = settings.prefix_cache,
                .integrity = integrity_config(settings.integrity),
                .integrity_retries = settings.integrity_retries,
                .domain = {.model_lineage = TRY(model_lineage(loaded)),
                           .weight_format = weight_format(model_config.weights.scheme),
                           .activation = settings.activation,
                           .kv_format = settings.kv_format},
                .seed = settings.seed};
  out.config.vocab_size = static_cast<int32_t>(model_config.shape.vocab_size);
  Backend& backend = *loaded.backend;
  PlanLimits limits = executor_limits(out.config);
  out.model =
      TRY(advise(loaded.make_model({.tokens_max = limits.tokens_max, .logits_max = limits.rows_max},
                                   {.kv_format = settings.kv_format,
                                    .activation = settings.activation,
                                    .fp8_bits_dropped = settings.fp8_bits_dropped}),
                 "Lower --chunked-prefill-size, --max-running-requests or --context-length"));
  loaded.startup.end_step("activations", &backend);
  if (!backend.reads_host_memory()) {
    TRY_OK(warm_up(*out.model, backend,
                   {.tokens_max = limits.tokens_max,
                    .rows_max = limits.rows_max,
                    .context_max = out.config.context_tokens}));
    loaded.startup.end_step("working memory", &backend);
  }
  out.config.n_pages =
      TRY(pool_pages(settings, out.config.context_tokens, backend, out.model->kv_layout()));
  limits = executor_limits(out.config);
  // Where the host runs ahead of the device, the next step is given before this one's tokens are
  // read, and decode steps are launched as one.
  const bool runs_ahead = backend.is_asynchronous();
  out.config.overlap = runs_ahead ? Overlap::on : Overlap::off;
  std::vector<StepChecks> checks = settings.recorded_checks;
  if (checks.empty()) checks = {step_checks(out.config.integrity)};
  out.executor =
      TRY(advise(ModelExecutor::make(backend, *out.model, limits,
                                     {.record = runs_ahead ? RecordSteps::yes : RecordSteps::no,
                                      .checks = std::move(checks)}),
                 "Lower --mem-fraction-static or --max-total-tokens"));
  if (const Status& recording = out.executor->recording_status(); !recording.ok()) {
    loaded.startup.warn("decode steps are not recorded, and slower: " + recording.error().message);
  }
  loaded.startup.end_step("KV pool and recorded steps", &backend);
  out.loaded = std::move(loaded);
  return out;
}

}  // namespace quire
