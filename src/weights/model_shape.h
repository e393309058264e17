// ModelShape: the sizes of a latent-attention mixture-of-experts decoder. Plain numbers that the
// weight table, the forward pass and the page layout share; not how it computes (model/config.h).
#pragma once

#include <bitset>
#include <cstdint>

namespace quire {

// Decoder layers and those that predict further tokens, together at most.
inline constexpr int64_t kModelLayersMax = 1088;

struct ModelShape {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t n_layers = 0;
  int64_t n_dense_layers = 0;  // the first ones, whose MLP is dense (first_k_dense_replace)

  int64_t n_heads = 0;
  int64_t q_lora_rank = 0;   // 0: queries are projected in one step
  int64_t kv_lora_rank = 0;  // latent values a token
  int64_t nope_dim = 0;      // of a head: values without position (qk_nope_head_dim)
  int64_t rope_dim = 0;      // of a head: rotated values (qk_rope_head_dim)
  int64_t v_dim = 0;         // of a head: value size (v_head_dim)

  int64_t dense_inner = 0;   // intermediate_size
  int64_t expert_inner = 0;  // moe_intermediate_size
  int64_t n_experts = 0;     // routed
  int64_t top_k = 0;         // experts a token
  int64_t n_shared_experts = 0;

  // Layers past the last one that predict further tokens (MTP), numbered on. Nothing runs them yet.
  int64_t n_predictors = 0;

  // Of a sparse attention indexer (GLM-5); 0 where a model has none.
  int64_t indexer_heads = 0;
  int64_t indexer_dim = 0;                    // of a head, and of its one key a token
  std::bitset<kModelLayersMax> owns_indexer;  // by layer, predictors included

  int64_t qk_dim() const { return nope_dim + rope_dim; }
  int64_t shared_inner() const { return n_shared_experts * expert_inner; }
  int64_t indexer_inner() const { return indexer_heads * indexer_dim; }
  bool has_indexer(int64_t layer) const { return owns_indexer[static_cast<size_t>(layer)]; }
  int64_t n_indexer_layers() const {  // predictors not counted
    int64_t n = 0;
    for (int64_t layer = 0; layer < n_layers; ++layer) n += has_indexer(layer) ? 1 : 0;
    return n;
  }
  bool is_predictor(int64_t layer) const { return layer >= n_layers; }
  bool is_dense_layer(int64_t layer) const { return layer < n_dense_layers; }
};

}  // namespace quire
