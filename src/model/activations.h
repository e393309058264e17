// Activations: every intermediate value of a forward pass, allocated once for the largest batch.
//
// The attention block and the MLP block never hold values at the same time: they take turns in one
// region of memory. Values do not outlive a call of Model::forward.
#pragma once

#include "model/model.h"
#include "ops/backend.h"

namespace quire {

// The buffers of one step, cut to its size.
struct StepBuffers {
  View<Bf16, 2> h;             // [n_tokens, hidden] the residual stream
  View<Bf16, 2> normed;        // [n_tokens, hidden] input of a block
  View<Bf16, 2> block_out;     // [n_tokens, hidden] output of a block
  View<TokenPlace, 1> places;  // [n_tokens] in the cache; kept to the end of the step

  // Attention.
  View<Bf16, 2> q_a;          // [n_tokens, q_lora]; empty when q_lora_rank is 0
  View<Bf16, 3> q;            // [n_tokens, n_heads, nope + rope]
  View<Bf16, 2> kv_a;         // [n_tokens, kv_lora + rope]
  View<Bf16, 3> q_latent;     // [n_tokens, n_heads, kv_lora]
  View<Bf16, 3> attn_latent;  // [n_tokens, n_heads, kv_lora]
  View<Bf16, 3> attn;         // [n_tokens, n_heads, v]

  // MLP.
  View<Bf16, 2> dense_gate;       // [n_tokens, dense_inner]
  View<Bf16, 2> dense_up;         // [n_tokens, dense_inner]
  View<float, 2> router_scores;   // [n_tokens, n_experts]
  View<int32_t, 3> routed;        // [mixture layers, n_tokens, top_k]; kept to the end of the step
  View<int32_t, 2> experts;       // [n_tokens, top_k] of the layer at hand, in `routed`
  View<float, 2> expert_weights;  // [n_tokens, top_k]

  // The end.
  View<Bf16, 2> last;         // [n_logits, hidden]
  View<float, 2> logits;      // [n_logits, vocab]
  View<float, 2> all_logits;  // [n_logits, n_ranks * vocab]; empty of one rank
};

class Activations {
 public:
  // `n_ranks` is how many share the vocabulary. Errors: resource_exhausted.
  static Result<Activations> make(Backend& backend, const ModelShape& shape,
                                  const ModelLimits& limits, int64_t n_ranks);

  // n_tokens and n_logits are within the limits.
  StepBuffers step(int64_t n_tokens, int64_t n_logits) const;

  int64_t bytes() const { return memory_.bytes(); }

 private:
  Activations(const ModelShape& shape, const ModelLimits& limits, int64_t n_ranks)
      : shape_(shape), limits_(limits), n_ranks_(n_ranks) {}

  StepBuffers carve(std::byte* base, int64_t n_tokens, int64_t n_logits, int64_t* bytes) const;

  ModelShape shape_;
  ModelLimits limits_;
  int64_t n_ranks_;
  Buffer memory_;
};

}  // namespace quire
