// The weight table: one entry a tensor, with its name in a checkpoint, its sizes and the formats it
// may have. The only place that knows the names of published checkpoints.
//
// It says what must be there; weights/loader.h finds it, checks it and places it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/model_shape.h"
#include "weights/weight_scheme.h"

namespace quire {

enum class Weight : uint8_t {
  embedding,
  final_norm,
  lm_head,
  input_norm,
  q_a,
  q_a_norm,
  q_b,
  kv_a,
  kv_a_norm,
  kv_b,
  o,
  post_attention_norm,
  dense_gate,
  dense_up,
  dense_down,
  router,
  router_bias,
  expert_gate,
  expert_up,
  expert_down,
  shared_gate,
  shared_up,
  shared_down,
  // Of a sparse attention indexer.
  indexer_q,
  indexer_k,
  indexer_k_norm,
  indexer_k_norm_bias,
  indexer_weights,
  // Of a layer that predicts a further token.
  predictor_join,
  predictor_token_norm,
  predictor_hidden_norm,
  predictor_final_norm,
};

// How a tensor is stored, and what is made of it.
enum class Storage : uint8_t {
  bf16_rows,    // BF16, [out, in], read as a plain array
  bf16_vector,  // BF16, [out]
  f32_vector,   // F32 or BF16, [out], widened to F32
  bf16_matrix,  // BF16, [out, in]: a linear map that no scheme quantises
  matrix,       // a linear map in any format
  kv_b,         // a linear map in BF16 or FP8; split by head into W_UK and W_UV, in BF16
};

struct WantedTensor {
  Weight weight;
  Storage storage;
  int64_t layer = -1;   // -1: of no layer
  int64_t expert = -1;  // -1: of no expert
  // The name in the checkpoint. Of matrices the module's name, to which the format adds ".weight",
  // ".weight_scale_inv", ".weight_packed" or ".weight_scale"; else the whole name.
  std::string source;
  std::string module;  // of matrices: the same without the naming prefix, as ignore lists spell it
  int64_t n_out = 0;
  int64_t n_in = 0;  // 0 of vectors
};

// Which layers are asked for.
enum class LayerScope : uint8_t {
  decoder,          // what a forward pass reads
  with_predictors,  // and the layers past the last one: the whole checkpoint
};

// Every tensor that a model of this shape has, layer by layer.
std::vector<WantedTensor> wanted_tensors(const ModelShape& shape, CheckpointNaming naming,
                                         LayerScope scope = LayerScope::decoder);

// A tensor that a text model of this shape leaves unread on purpose: the vision tower, layers of
// multi-token prediction, shapes that quantised tensors repeat, frequencies that can be computed.
bool is_unread_tensor(std::string_view name, const ModelShape& shape, CheckpointNaming naming);

}  // namespace quire
