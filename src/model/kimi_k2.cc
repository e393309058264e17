#include "model/kimi_k2.h"

#include <utility>

#include "base/text.h"
#include "model/blocks.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gather_rows.h"
#include "ops/linear.h"
#include "ops/place_tokens.h"
#include "ops/rms_norm.h"

namespace quire {

namespace {

// The vocabulary is cut in order of rank. Without a collective ids are of this rank's part.
int32_t first_id(const Collective* collective, int64_t n_rows) {
  return collective == nullptr ? 0 : collective->rank().value * static_cast<int32_t>(n_rows);
}

}  // namespace

KimiK2::KimiK2(const ModelConfig& config, const ModelWeights& weights, Backend& backend,
               const ModelOptions& options, RopeTable rope, Activations activations)
    : config_(config),
      weights_(weights),
      backend_(backend),
      options_(options),
      kv_layout_(config.kv_layout(options.kv_format)),
      rope_(std::move(rope)),
      activations_(std::move(activations)) {}

void KimiK2::sum_over_ranks(const View<Bf16, 2>& x) {
  if (options_.collective != nullptr && x.size() > 0) options_.collective->sum(x);
}

View<float, 2> KimiK2::forward(const ModelBatch& batch) {
  StepBuffers s = activations_.step(batch.ids[0], batch.logit_rows[0]);
  const BlockContext context{backend_, config_, options_, rope_};
  const auto eps = static_cast<float>(config_.norm_eps);

  // h += block_out of all ranks, and the norm of that for the next block.
  const auto add_and_norm = [&](const View<const Bf16, 1>& weight) {
    sum_over_ranks(s.block_out);
    ops::add_rms_norm(
        backend_, {.out = s.normed, .h = s.h, .delta = s.block_out, .weight = weight, .eps = eps});
  };

  ops::place_tokens(
      backend_, {.out = s.places, .kv = batch.kv, .tokens = batch.tokens, .guard = batch.guard});
  ops::embed(backend_, {.out = s.h,
                        .ids = batch.ids,
                        .table = weights_.embedding,
                        .first_id = first_id(options_.collective, weights_.embedding[0])});
  sum_over_ranks(s.h);
  for (int32_t layer = 0; layer < static_cast<int32_t>(config_.shape.n_layers); ++layer) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];

    if (layer == 0) {
      ops::rms_norm(backend_, {.out = s.normed, .x = s.h, .weight = w.input_norm, .eps = eps});
    } else {
      add_and_norm(w.input_norm);
    }
    attention(context, layer, w, batch, s);

    add_and_norm(w.post_attention_norm);
    if (config_.shape.is_dense_layer(layer)) {
      dense_mlp(context, w, s);
    } else {
      s.experts = s.routed.row(layer - config_.shape.n_dense_layers);
      mixture_of_experts(context, w, s);
    }
  }
  sum_over_ranks(s.block_out);
  ops::add(backend_, {.out = s.h, .a = s.h, .b = s.block_out});
  return logits(batch);
}

View<float, 2> KimiK2::logits(const ModelBatch& batch) {
  const StepBuffers s = activations_.step(batch.ids[0], batch.logit_rows[0]);
  const auto eps = static_cast<float>(config_.norm_eps);
  ops::gather_rows(backend_, {.out = s.last, .x = s.h, .rows = batch.logit_rows});
  ops::rms_norm(backend_, {.out = s.last, .x = s.last, .weight = weights_.final_norm, .eps = eps});
  ops::linear(backend_, {.out_f32 = s.logits, .x = s.last, .weight = weights_.lm_head});
  if (options_.collective == nullptr) return s.logits;
  options_.collective->gather_columns(s.all_logits, s.logits);
  return s.all_logits;
}

Result<std::unique_ptr<Model>> KimiK2::make(const ModelConfig& config, const ModelWeights& weights,
                                            Backend& backend, const ModelLimits& limits,
                                            const ModelOptions& options) {
  const int64_t n_positions =
      limits.positions_max == 0 ? config.positions_max : limits.positions_max;
  if (n_positions > config.positions_max) {
    return invalid_argument(format("%lld positions asked, the model has %lld",
                                   static_cast<long long>(n_positions),
                                   static_cast<long long>(config.positions_max)));
  }
  RopeTable rope = TRY(RopeTable::make(backend, config.rope, config.shape.rope_dim, n_positions));
  const int64_t n_ranks = options.collective == nullptr ? 1 : options.collective->n_ranks();
  Activations activations = TRY(Activations::make(backend, config.shape, limits, n_ranks));
  return std::unique_ptr<Model>(
      new KimiK2(config, weights, backend, options, std::move(rope), std::move(activations)));
}

Result<std::unique_ptr<Model>> make_model(const ModelConfig& config, const ModelWeights& weights,
                                          Backend& backend, const ModelLimits& limits,
                                          const ModelOptions& options) {
  TRY_OK(check_supported(config));
  switch (config.architecture) {
    case Architecture::deepseek_v3:
    case Architecture::kimi_k25:
      return KimiK2::make(config, weights, backend, limits, options);
    case Architecture::glm_moe_dsa:
      break;
  }
  return unsupported(config.architecture_text + " is not supported yet");
}

}  // namespace quire
