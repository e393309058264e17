// KimiK2: the forward pass of Kimi K2 and its relatives (DeepSeek-V3's architecture without groups
// of experts): latent attention, dense layers first, then mixtures of experts.
#pragma once

#include <memory>

#include "model/activations.h"
#include "model/model.h"
#include "model/rope_table.h"

namespace quire {

class KimiK2 final : public Model {
 public:
  // As make_model, for a config that passed check_supported.
  static Result<std::unique_ptr<Model>> make(const ModelConfig& config, const ModelWeights& weights,
                                             Backend& backend, const ModelLimits& limits,
                                             const ModelOptions& options);

  const ModelConfig& config() const override { return config_; }
  const KvPageLayout& kv_layout() const override { return kv_layout_; }
  View<float, 2> forward(const ModelBatch& batch) override;
  View<float, 2> logits(const ModelBatch& batch) override;
  View<const TokenPlace, 1> places(int64_t n_tokens) const override {
    return activations_.step(n_tokens, 0).places;
  }
  View<const int32_t, 3> routed_experts(int64_t n_tokens) const override {
    return activations_.step(n_tokens, 0).routed;
  }

 private:
  // Adds up what every rank has computed of `x`; nothing without a collective.
  void sum_over_ranks(const View<Bf16, 2>& x);

  KimiK2(const ModelConfig& config, const ModelWeights& weights, Backend& backend,
         const ModelOptions& options, RopeTable rope, Activations activations);

  const ModelConfig config_;
  const ModelWeights& weights_;  // outlives the model, as make_model says
  Backend& backend_;             // the same
  const ModelOptions options_;
  const KvPageLayout kv_layout_;
  const RopeTable rope_;
  const Activations activations_;
};

}  // namespace quire
