// Model: forward(batch) -> logits, on whatever backend it was built for.
//
// Holds borrowed weights and its own activations, allocated once for `limits`. Knows pages only as
// PagedKv; knows nothing of requests, sampling or scheduling. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "format/kv_page.h"
#include "model/config.h"
#include "ops/backend.h"
#include "ops/collective.h"
#include "ops/linear.h"
#include "ops/paged_kv.h"
#include "ops/place_tokens.h"
#include "weights/model_weights.h"

namespace quire {

// The tokens of one step. All views are in the backend's memory.
struct ModelBatch {
  View<const int32_t, 1> ids;  // [n_tokens]
  TokenRows tokens;            // [n_tokens]
  PagedKv kv;
  View<const int32_t, 1> logit_rows;  // [n_logits] tokens of this batch whose logits are wanted
  WriteGuard guard = {};              // empty: stores into the cache are not checked
};

struct ModelLimits {
  int64_t tokens_max = 0;  // n_tokens of a batch
  int64_t logits_max = 0;  // n_logits of a batch
  // Positions are below it; 0: what the config allows. A lower one saves memory for angles.
  int64_t positions_max = 0;
};

struct ModelOptions {
  KvFormat kv_format = KvFormat::bf16;
  Activation activation = Activation::bf16;
  int fp8_bits_dropped = 0;  // precision control of `quire eval` (ops/kv_append.h)
  // With the other ranks of the same model, whose weights are this rank's part (weights/shard.h);
  // outlives the model. Null: there are none, or their sums are left out (a rank share).
  Collective* collective = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const KvPageLayout& kv_layout() const = 0;

  // Runs the batch, appending its keys to the pages. Returns [n_logits, vocab] in the backend's
  // memory, the caller's to change, valid until the next call; with a collective of all ranks'
  // vocabulary. Batches past the limits are a programmer error. What it asks of the backend depends
  // on the shapes of `batch` alone, so that it can be recorded.
  virtual View<float, 2> forward(const ModelBatch& batch) = 0;

  // The logits of other tokens of the batch that `forward` was given last, in place of those it
  // returned: `batch` is the same but for its logit_rows. So a prompt's every position can be asked
  // for, logits_max at a time.
  virtual View<float, 2> logits(const ModelBatch& batch) = 0;

  // Where the tokens of the last batch of `n_tokens` were stored, in the backend's memory until the
  // next call: [n_tokens].
  virtual View<const TokenPlace, 1> places(int64_t n_tokens) const = 0;

  // The experts that the last batch of `n_tokens` was sent to, in the backend's memory until the
  // next call: [mixture layers, n_tokens, top_k]. Empty when no layer is a mixture.
  virtual View<const int32_t, 3> routed_experts(int64_t n_tokens) const = 0;
};

// A model of any supported architecture. `weights` and `backend` outlive it.
// Errors: unsupported; resource_exhausted; invalid_argument when positions_max passes the config's.
Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelWeights& weights,
                                          Backend& backend, const ModelLimits& limits,
                                          const ModelOptions& options);

}  // namespace quire
