// EngineConfig: the sizes and settings that an engine has from its start to its end, and what
// follows from them alone. Not what a model is (model/config.h), nor what a tool offers (tools/).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/executor.h"
#include "engine/integrity.h"
#include "engine/request.h"
#include "format/kv_page.h"
#include "kv/prefix_index.h"

namespace quire {

// Whether a step is submitted before the tokens of the one before it are read. It pays when the
// executor is asynchronous, and changes no answer.
enum class Overlap : uint8_t { off, on };

struct EngineConfig {
  int32_t n_pages = 0;  // of the pool; page 0 is the null page and never used
  int32_t page_tokens = kPageTokens;
  int32_t vocab_size = 0;
  int32_t context_tokens = 0;             // longest sequence
  int32_t running_requests_max = 0;       // slots
  int32_t queued_requests_max = 0;        // beyond those; past both together: resource_exhausted
  int32_t chunked_prefill_tokens = 2048;  // prompt tokens of a step, all requests together
  bool prefix_cache = true;
  Overlap overlap = Overlap::off;
  IntegrityConfig integrity;
  // How often a request that a check stopped begins again from its prompt instead of failing.
  int32_t integrity_retries = 0;
  PrefixDomain domain;  // lineage and formats (docs/formats/page_tag.md)
  // Of a page's identity, 1 to 128: fewer are for tests of equal hashes.
  int identity_bits = 128;
  uint64_t seed = 0;  // nonces and default sampling seeds
};

// The plans that an engine of this config submits: what its executor has to be built for.
PlanLimits executor_limits(const EngineConfig& config);

// What its executor has to do about the pages of a step.
StepChecks step_checks(const IntegrityConfig& integrity);

// Whether the request can ever run under `config`: its tokens are tokens, it fits the context, and
// it fits the pool alone. A pure function, for callers on any thread. Errors: invalid_argument.
Status check_request(const EngineConfig& config, const GenerateRequest& request);

}  // namespace quire
