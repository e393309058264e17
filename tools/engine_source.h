// From a model folder to what an engine needs: the model, its executor and the engine's config.
//
// For every tool that generates (serve, chat, eval, bench), so that they agree on sizes. Starts no
// thread: a tool makes an Engine or an EngineService of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"
#include "tools/model_source.h"
#include "tools/pool_budget.h"

namespace quire {

enum class PoolSize : uint8_t {
  for_requests,  // every running request its whole context, or as much as a device has room for
  all_there_is,  // of a device, what mem_fraction leaves: for servers, which keep prefixes
};

struct EngineSettings {
  KvFormat kv_format = KvFormat::bf16;
  Activation activation = Activation::bf16;
  int fp8_bits_dropped = 0;           // precision control of `quire eval`
  int32_t context_tokens = 0;         // 0: as long as the model allows
  int32_t running_requests_max = 16;  // at once
  int32_t queued_requests_max = 64;   // waiting beside them
  int64_t kv_tokens = 0;              // of the pool, at most; 0: as pool_size says
  PoolSize pool_size = PoolSize::for_requests;
  double mem_fraction = kMemFraction;  // of a device's memory, for all of it
  int32_t chunked_prefill_tokens = 0;  // 0: kPrefillTokensCpu or kPrefillTokensCuda
  bool prefix_cache = true;
  IntegrityLevel integrity = IntegrityLevel::tags;
  int32_t integrity_retries = 0;
  // What decode steps are recorded for; empty: what the level asks of a step.
  std::vector<StepChecks> recorded_checks = {};
  uint64_t seed = 0;
};

// A step of this many prompt tokens stays short enough for those who decode beside it; on a device
// it is also long enough to use it fully.
inline constexpr int32_t kPrefillTokensCpu = 256;
inline constexpr int32_t kPrefillTokensCuda = 8192;

// Members are destroyed in reverse order; an engine made of it must be gone before it is.
struct ModelEngine {
  LoadedModel loaded;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelExecutor> executor;
  EngineConfig config;
};

// Runs the largest steps once, so that on a device the pool can have what is left. Errors: as
// make_model; invalid_argument for sizes that cannot be; resource_exhausted, saying what to lower.
Result<ModelEngine> make_model_engine(LoadedModel loaded, const EngineSettings& settings);

}  // namespace quire
