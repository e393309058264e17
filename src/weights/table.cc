#include "weights/table.h"

#include <array>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

enum class Repeat : uint8_t { once, each_layer, each_expert };

// Which layers, of which models, have the tensor.
enum class When : uint8_t {
  always,
  q_lora,
  no_q_lora,
  dense_layer,
  moe_layer,
  moe_layer_with_shared,
  indexer_layer,
  predictor,
};

enum class Axis : uint8_t {
  none,
  vocab,
  hidden,
  q_lora,
  q_heads,     // n_heads * (nope + rope): of each head, nope rows first
  latent_key,  // kv_lora + rope: latent rows first
  kv_lora,
  kv_heads,  // n_heads * (nope + v): of each head, nope rows (W_UK) first
  v_heads,   // n_heads * v
  dense_inner,
  expert_inner,
  shared_inner,
  experts,
  indexer_inner,
  indexer_dim,
  indexer_heads,
  two_hidden,  // an embedding beside a hidden state
};

struct Entry {
  Weight weight;
  const char* source;  // after the prefix of what it repeats over
  Repeat repeat;
  When when;
  Storage storage;
  Axis out;
  Axis in = Axis::none;
};

// Source: the checkpoints of DeepSeek-V3 and Kimi K2 (deepseek-ai/DeepSeek-V3, README_WEIGHTS.md).
constexpr std::array kTable = {
    Entry{Weight::embedding, "model.embed_tokens.weight", Repeat::once, When::always,
          Storage::bf16_rows, Axis::vocab, Axis::hidden},
    Entry{Weight::final_norm, "model.norm.weight", Repeat::once, When::always, Storage::bf16_vector,
          Axis::hidden},
    Entry{Weight::lm_head, "lm_head", Repeat::once, When::always, Storage::matrix, Axis::vocab,
          Axis::hidden},

    Entry{Weight::input_norm, "input_layernorm.weight", Repeat::each_layer, When::always,
          Storage::bf16_vector, Axis::hidden},
    // Next to each other: maps of one input, which a backend may take for one (ops/linear.h).
    Entry{Weight::q_a, "self_attn.q_a_proj", Repeat::each_layer, When::q_lora, Storage::matrix,
          Axis::q_lora, Axis::hidden},
    Entry{Weight::kv_a, "self_attn.kv_a_proj_with_mqa", Repeat::each_layer, When::always,
          Storage::matrix, Axis::latent_key, Axis::hidden},
    Entry{Weight::q_a_norm, "self_attn.q_a_layernorm.weight", Repeat::each_layer, When::q_lora,
          Storage::bf16_vector, Axis::q_lora},
    Entry{Weight::q_b, "self_attn.q_b_proj", Repeat::each_layer, When::q_lora, Storage::matrix,
          Axis::q_heads, Axis::q_lora},
    Entry{Weight::q_b, "self_attn.q_proj", Repeat::each_layer, When::no_q_lora, Storage::matrix,
          Axis::q_heads, Axis::hidden},
    Entry{Weight::kv_a_norm, "self_attn.kv_a_layernorm.weight", Repeat::each_layer, When::always,
          Storage::bf16_vector, Axis::kv_lora},
    Entry{Weight::kv_b, "self_attn.kv_b_proj", Repeat::each_layer, When::always, Storage::kv_b,
          Axis::kv_heads, Axis::kv_lora},
    Entry{Weight::o, "self_attn.o_proj", Repeat::each_layer, When::always, Storage::matrix,
          Axis::hidden, Axis::v_heads},
    Entry{Weight::post_attention_norm, "post_attention_layernorm.weight", Repeat::each_layer,
          When::always, Storage::bf16_vector, Axis::hidden},

    Entry{Weight::dense_gate, "mlp.gate_proj", Repeat::each_layer, When::dense_layer,
          Storage::matrix, Axis::dense_inner, Axis::hidden},
    Entry{Weight::dense_up, "mlp.up_proj", Repeat::each_layer, When::dense_layer, Storage::matrix,
          Axis::dense_inner, Axis::hidden},
    Entry{Weight::dense_down, "mlp.down_proj", Repeat::each_layer, When::dense_layer,
          Storage::matrix, Axis::hidden, Axis::dense_inner},

    Entry{Weight::router, "mlp.gate", Repeat::each_layer, When::moe_layer, Storage::bf16_matrix,
          Axis::experts, Axis::hidden},
    Entry{Weight::router_bias, "mlp.gate.e_score_correction_bias", Repeat::each_layer,
          When::moe_layer, Storage::f32_vector, Axis::experts},
    Entry{Weight::expert_gate, "gate_proj", Repeat::each_expert, When::moe_layer, Storage::matrix,
          Axis::expert_inner, Axis::hidden},
    Entry{Weight::expert_up, "up_proj", Repeat::each_expert, When::moe_layer, Storage::matrix,
          Axis::expert_inner, Axis::hidden},
    Entry{Weight::expert_down, "down_proj", Repeat::each_expert, When::moe_layer, Storage::matrix,
          Axis::hidden, Axis::expert_inner},
    Entry{Weight::shared_gate, "mlp.shared_experts.gate_proj", Repeat::each_layer,
          When::moe_layer_with_shared, Storage::matrix, Axis::shared_inner, Axis::hidden},
    Entry{Weight::shared_up, "mlp.shared_experts.up_proj", Repeat::each_layer,
          When::moe_layer_with_shared, Storage::matrix, Axis::shared_inner, Axis::hidden},
    Entry{Weight::shared_down, "mlp.shared_experts.down_proj", Repeat::each_layer,
          When::moe_layer_with_shared, Storage::matrix, Axis::hidden, Axis::shared_inner},

    // Source: zai-org's GLM-5 in transformers (GlmMoeDsaForCausalLM).
    Entry{Weight::indexer_q, "self_attn.indexer.wq_b", Repeat::each_layer, When::indexer_layer,
          Storage::matrix, Axis::indexer_inner, Axis::q_lora},
    Entry{Weight::indexer_k, "self_attn.indexer.wk", Repeat::each_layer, When::indexer_layer,
          Storage::matrix, Axis::indexer_dim, Axis::hidden},
    Entry{Weight::indexer_k_norm, "self_attn.indexer.k_norm.weight", Repeat::each_layer,
          When::indexer_layer, Storage::bf16_vector, Axis::indexer_dim},
    Entry{Weight::indexer_k_norm_bias, "self_attn.indexer.k_norm.bias", Repeat::each_layer,
          When::indexer_layer, Storage::bf16_vector, Axis::indexer_dim},
    Entry{Weight::indexer_weights, "self_attn.indexer.weights_proj", Repeat::each_layer,
          When::indexer_layer, Storage::bf16_matrix, Axis::indexer_heads, Axis::hidden},
    Entry{Weight::predictor_join, "eh_proj", Repeat::each_layer, When::predictor,
          Storage::bf16_matrix, Axis::hidden, Axis::two_hidden},
    Entry{Weight::predictor_token_norm, "enorm.weight", Repeat::each_layer, When::predictor,
          Storage::bf16_vector, Axis::hidden},
    Entry{Weight::predictor_hidden_norm, "hnorm.weight", Repeat::each_layer, When::predictor,
          Storage::bf16_vector, Axis::hidden},
    Entry{Weight::predictor_final_norm, "shared_head.norm.weight", Repeat::each_layer,
          When::predictor, Storage::bf16_vector, Axis::hidden},
};

constexpr std::string_view kLanguageModelPrefix = "language_model.";
constexpr std::array<std::string_view, 2> kVisionPrefixes = {"vision_tower.", "mm_projector."};
// Values of weight_shape are not to be trusted: published files hold garbage there. Shapes follow
// from the packed weights themselves.
constexpr std::array<std::string_view, 2> kRedundantSuffixes = {".weight_shape",
                                                                ".rotary_emb.inv_freq"};

int64_t size_of(Axis axis, const ModelShape& shape) {
  switch (axis) {
    case Axis::none:
      return 0;
    case Axis::vocab:
      return shape.vocab_size;
    case Axis::hidden:
      return shape.hidden_size;
    case Axis::q_lora:
      return shape.q_lora_rank;
    case Axis::q_heads:
      return shape.n_heads * shape.qk_dim();
    case Axis::latent_key:
      return shape.kv_lora_rank + shape.rope_dim;
    case Axis::kv_lora:
      return shape.kv_lora_rank;
    case Axis::kv_heads:
      return shape.n_heads * (shape.nope_dim + shape.v_dim);
    case Axis::v_heads:
      return shape.n_heads * shape.v_dim;
    case Axis::dense_inner:
      return shape.dense_inner;
    case Axis::expert_inner:
      return shape.expert_inner;
    case Axis::shared_inner:
      return shape.shared_inner();
    case Axis::experts:
      return shape.n_experts;
    case Axis::indexer_inner:
      return shape.indexer_inner();
    case Axis::indexer_dim:
      return shape.indexer_dim;
    case Axis::indexer_heads:
      return shape.indexer_heads;
    case Axis::two_hidden:
      return 2 * shape.hidden_size;
  }
  CHECK(false);
  return 0;
}

bool has(When when, int64_t layer, const ModelShape& shape) {
  switch (when) {
    case When::always:
      return true;
    case When::q_lora:
      return shape.q_lora_rank > 0;
    case When::no_q_lora:
      return shape.q_lora_rank == 0;
    case When::dense_layer:
      return shape.is_dense_layer(layer);
    case When::moe_layer:
      return !shape.is_dense_layer(layer);
    case When::moe_layer_with_shared:
      return !shape.is_dense_layer(layer) && shape.n_shared_experts > 0;
    case When::indexer_layer:
      return shape.has_indexer(layer);
    case When::predictor:
      return shape.is_predictor(layer);
  }
  CHECK(false);
  return false;
}

std::string_view prefix_of(CheckpointNaming naming) {
  return naming == CheckpointNaming::language_model ? kLanguageModelPrefix : std::string_view();
}

// Collects the wanted tensors of one shape.
class Expansion {
 public:
  Expansion(const ModelShape& shape, CheckpointNaming naming) : shape_(shape), naming_(naming) {}

  std::vector<WantedTensor> expand(LayerScope scope) {
    const bool has_predictors = scope == LayerScope::with_predictors;
    const int64_t n_layers = shape_.n_layers + (has_predictors ? shape_.n_predictors : 0);
    for (const Entry& entry : kTable) {
      if (entry.repeat == Repeat::once) add(entry, "", -1, -1);
    }
    for (int64_t layer = 0; layer < n_layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      for (const Entry& entry : kTable) {
        if (entry.repeat == Repeat::each_layer) add(entry, prefix, layer, -1);
      }
      for (int64_t expert = 0; expert < shape_.n_experts; ++expert) {
        const std::string expert_prefix = prefix + "mlp.experts." + std::to_string(expert) + ".";
        for (const Entry& entry : kTable) {
          if (entry.repeat == Repeat::each_expert) add(entry, expert_prefix, layer, expert);
        }
      }
    }
    return std::move(wanted_);
  }

 private:
  void add(const Entry& entry, const std::string& prefix, int64_t layer, int64_t expert) {
    if (!has(entry.when, layer, shape_)) return;
    const std::string module = prefix + entry.source;
    wanted_.push_back({.weight = entry.weight,
                       .storage = entry.storage,
                       .layer = layer,
                       .expert = expert,
                       .source = std::string(prefix_of(naming_)) + module,
                       .module = module,
                       .n_out = size_of(entry.out, shape_),
                       .n_in = size_of(entry.in, shape_)});
  }

  const ModelShape& shape_;
  CheckpointNaming naming_;
  std::vector<WantedTensor> wanted_;
};

}  // namespace

std::vector<WantedTensor> wanted_tensors(const ModelShape& shape, CheckpointNaming naming,
                                         LayerScope scope) {
  return Expansion(shape, naming).expand(scope);
}

bool is_unread_tensor(std::string_view name, const ModelShape& shape, CheckpointNaming naming) {
  if (naming == CheckpointNaming::language_model) {
    for (const std::string_view prefix : kVisionPrefixes) {
      if (name.starts_with(prefix)) return true;
    }
    if (!name.starts_with(kLanguageModelPrefix)) return false;
    name.remove_prefix(kLanguageModelPrefix.size());
  }
  for (const std::string_view suffix : kRedundantSuffixes) {
    if (name.ends_with(suffix)) return true;
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::string_view rest = name.substr(kLayers.size());
  const auto layer = parse_int(rest.substr(0, rest.find('.')));
  // Layers past the last one predict further tokens (MTP).
  return layer && *layer >= shape.n_layers;
}

}  // namespace quire
