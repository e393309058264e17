// The blocks of a decoder layer: latent attention, the dense MLP, the mixture of experts.
//
// Each reads s.normed and writes s.block_out; the residual stream is the caller's (kimi_k2.cc). One
// op a statement, output first.
#pragma once

#include "model/activations.h"
#include "model/model.h"
#include "model/rope_table.h"
#include "weights/model_weights.h"

namespace quire {

// What the blocks of every layer share. Borrowed from the model for one forward pass.
struct BlockContext {
  Backend& backend;
  const ModelConfig& config;
  const ModelOptions& options;
  const RopeTable& rope;
};

void attention(const BlockContext& context, int32_t layer, const LayerWeights& w,
               const ModelBatch& batch, StepBuffers& s);
void dense_mlp(const BlockContext& context, const LayerWeights& w, StepBuffers& s);
void mixture_of_experts(const BlockContext& context, const LayerWeights& w, StepBuffers& s);

}  // namespace quire
