// ModelWeights: every weight of a model, where the forward pass expects it, in backend memory.
//
// Owns what it needs to stay alive: the mapped checkpoint that views may borrow, and the memory of
// what had to be copied or converted. Made by weights/loader.h; never changes.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "format/checkpoint.h"
#include "ops/expert_bank.h"
#include "ops/weight_matrix.h"
#include "tensor/buffer.h"
#include "weights/model_shape.h"

namespace quire {

// A decoder layer. What a layer does not have is left empty.
struct LayerWeights {
  View<const Bf16, 1> input_norm;           // [hidden]
  WeightMatrix q_a;                         // [q_lora, hidden]; empty when q_lora_rank is 0
  View<const Bf16, 1> q_a_norm;             // [q_lora]; empty when q_lora_rank is 0
  WeightMatrix q_b;                         // [n_heads * qk, q_lora], or [n_heads * qk, hidden]
  WeightMatrix kv_a;                        // [kv_lora + rope, hidden]
  View<const Bf16, 1> kv_a_norm;            // [kv_lora]
  View<const Bf16, 3> w_uk;                 // [n_heads, nope, kv_lora]
  View<const Bf16, 3> w_uv;                 // [n_heads, v, kv_lora]
  WeightMatrix o;                           // [hidden, n_heads * v]
  View<const Bf16, 1> post_attention_norm;  // [hidden]

  ops::ExpertWeights dense;                  // of dense layers; inner = dense_inner
  WeightMatrix router;                       // [n_experts, hidden]
  View<const float, 1> router_bias;          // [n_experts]
  std::unique_ptr<ops::ExpertBank> experts;  // n_experts and the shared ones; null of dense layers
};

struct ModelWeights {
  ModelShape shape;
  View<const Bf16, 2> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  View<const Bf16, 1> final_norm;  // [hidden]
  WeightMatrix lm_head;            // [vocab, hidden]

  // Of the routed experts: the format that most bytes have.
  WeightFormat expert_format = WeightFormat::bf16;
  int64_t borrowed_bytes = 0;  // read in place, in the mapped checkpoint
  int64_t copied_bytes = 0;    // in `memory`
  int64_t packed_bytes = 0;    // in the expert banks

  explicit ModelWeights(Checkpoint from) : checkpoint(std::move(from)) {}

  Checkpoint checkpoint;  // views may borrow from its mapping
  Buffer memory;          // empty when everything is borrowed
};

}  // namespace quire
