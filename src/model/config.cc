#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "model/config_reader.h"
#include "model/rope_table.h"

namespace quire {

namespace {

// A page holds one block a layer; anything past these bounds is a damaged or hostile config, not a
// model: Kimi K2 has hidden 7168, 61 layers, 384 experts and 163,840 tokens.
constexpr IntRange kWidth{1, 1 << 20};
constexpr IntRange kCount{1, 1 << 16};
constexpr IntRange kLayers{1, 1024};
constexpr IntRange kVocab{2, 1 << 24};
constexpr IntRange kPositions{1, 1 << 24};
constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr int kEosIdsMax = 64;

Result<Architecture> find_architecture(const std::string& text) {
  if (text == "DeepseekV3ForCausalLM") return Architecture::deepseek_v3;
  if (text == "KimiK25ForConditionalGeneration") return Architecture::kimi_k25;
  if (text == "GlmMoeDsaForCausalLM") return Architecture::glm_moe_dsa;
  return unsupported(
      format("config.json: architecture \"%s\" is not supported", excerpt(text).c_str()));
}

Result<std::string> read_architecture(const Json& root) {
  const auto found = root.find("architectures");
  const bool is_one =
      found != root.end() && found->is_array() && found->size() == 1 && (*found)[0].is_string();
  if (!is_one) return invalid_argument("config.json: architectures: expected an array of one name");
  return (*found)[0].get<std::string>();
}

Status read_shape(const ConfigReader& text, ModelShape* shape) {
  shape->vocab_size = TRY(text.integer("vocab_size", kVocab));
  shape->hidden_size = TRY(text.integer("hidden_size", kWidth));
  shape->n_layers = TRY(text.integer("num_hidden_layers", kLayers));
  shape->n_dense_layers = TRY(text.integer("first_k_dense_replace", {0, shape->n_layers}));
  shape->n_heads = TRY(text.integer("num_attention_heads", kCount));
  const int64_t kv_heads = TRY(text.integer_or("num_key_value_heads", kCount, shape->n_heads));
  if (kv_heads != shape->n_heads) {
    return text.refuse("num_key_value_heads", std::to_string(shape->n_heads) + " (every head)",
                       std::to_string(kv_heads));
  }
  shape->q_lora_rank = TRY(text.integer_or("q_lora_rank", kWidth, 0));
  shape->kv_lora_rank = TRY(text.integer("kv_lora_rank", kWidth));
  shape->nope_dim = TRY(text.integer("qk_nope_head_dim", kWidth));
  shape->rope_dim = TRY(text.integer("qk_rope_head_dim", kWidth));
  if (shape->rope_dim % 2 != 0) {
    return text.refuse("qk_rope_head_dim", "an even size", std::to_string(shape->rope_dim));
  }
  shape->v_dim = TRY(text.integer("v_head_dim", kWidth));
  shape->dense_inner = TRY(text.integer("intermediate_size", kWidth));
  shape->expert_inner = TRY(text.integer("moe_intermediate_size", kWidth));
  shape->n_experts = TRY(text.integer("n_routed_experts", kCount));
  shape->top_k = TRY(text.integer("num_experts_per_tok", {1, shape->n_experts}));
  shape->n_shared_experts = TRY(text.integer_or("n_shared_experts", {0, 64}, 0));
  return {};
}

Result<YarnConfig> read_yarn(const ConfigReader& rope) {
  YarnConfig yarn;
  yarn.factor = TRY(rope.number("factor", {1, 1e6}));
  yarn.original_max_positions = TRY(rope.integer("original_max_position_embeddings", kPositions));
  yarn.beta_fast = TRY(rope.number_or("beta_fast", {1e-6, 1e6}, yarn.beta_fast));
  yarn.beta_slow = TRY(rope.number_or("beta_slow", {1e-6, 1e6}, yarn.beta_slow));
  yarn.mscale = TRY(rope.number_or("mscale", {0, 1e3}, 0));
  yarn.mscale_all_dim = TRY(rope.number_or("mscale_all_dim", {0, 1e3}, 0));
  if (rope.has("attention_factor")) {
    yarn.attention_factor = TRY(rope.number("attention_factor", {1e-6, 1e6}));
  }
  const bool truncates = TRY(rope.boolean_or("truncate", true));
  if (!truncates) return rope.refuse("truncate", "true", "false");
  return yarn;
}

// Both spellings, old (rope_theta beside rope_scaling) and new (all in rope_parameters), are read;
// where a file has both, they must say the same.
Result<RopeConfig> read_rope_object(const ConfigReader& text, const char* key) {
  const ConfigReader object = TRY(text.object(key));
  RopeConfig rope;
  const char* type_key = object.has("rope_type") ? "rope_type" : "type";
  rope.type = TRY(object.text(type_key));
  rope.theta = object.has("rope_theta") ? TRY(object.number("rope_theta", {1, 1e12}))
                                        : TRY(text.number("rope_theta", {1, 1e12}));
  if (rope.type == "yarn") rope.yarn = TRY(read_yarn(object));
  return rope;
}

bool says_the_same(const RopeConfig& a, const RopeConfig& b) {
  if (a.theta != b.theta || a.type != b.type || a.yarn.has_value() != b.yarn.has_value()) {
    return false;
  }
  if (!a.yarn) return true;
  return a.yarn->factor == b.yarn->factor &&
         a.yarn->original_max_positions == b.yarn->original_max_positions &&
         a.yarn->beta_fast == b.yarn->beta_fast && a.yarn->beta_slow == b.yarn->beta_slow &&
         a.yarn->mscale == b.yarn->mscale && a.yarn->mscale_all_dim == b.yarn->mscale_all_dim &&
         a.yarn->attention_factor == b.yarn->attention_factor;
}

Result<RopeConfig> read_rope(const ConfigReader& text) {
  RopeConfig rope;
  if (text.has("rope_parameters")) {
    rope = TRY(read_rope_object(text, "rope_parameters"));
    if (text.has("rope_scaling")) {
      const RopeConfig other = TRY(read_rope_object(text, "rope_scaling"));
      if (!says_the_same(rope, other)) {
        return invalid_argument("config.json: rope_scaling and rope_parameters differ");
      }
    }
  } else if (text.has("rope_scaling")) {
    rope = TRY(read_rope_object(text, "rope_scaling"));
  } else {
    rope.theta = TRY(text.number("rope_theta", {1, 1e12}));
  }
  rope.interleaved = TRY(text.boolean_or("rope_interleave", true));
  return rope;
}

Status read_experts(const ConfigReader& text, ModelConfig* config) {
  config->routed_scaling = TRY(text.number("routed_scaling_factor", {1e-6, 1e6}));
  config->normalise_top_k = TRY(text.boolean_or("norm_topk_prob", true));
  // transformers leaves both out: they are all that its DeepseekV3 code does.
  config->scoring = TRY(text.text_or("scoring_func", "sigmoid"));
  config->top_k_rule = TRY(text.text_or("topk_method", "noaux_tc"));
  config->n_groups = TRY(text.integer_or("n_group", kCount, 1));
  config->top_k_groups = TRY(text.integer_or("topk_group", kCount, 1));
  config->moe_layer_stride = TRY(text.integer_or("moe_layer_freq", kCount, 1));
  return {};
}

// eos_token_id is an id or an array of ids.
Status read_ids(const ConfigReader& root, const ConfigReader& text, ModelConfig* config) {
  const IntRange ids{0, config->shape.vocab_size - 1};
  const auto owner = [&](const char* key) { return root.has(key) ? &root : &text; };
  if (const ConfigReader* from = owner("bos_token_id"); from->has("bos_token_id")) {
    config->bos_id = static_cast<Token>(TRY(from->integer("bos_token_id", ids)));
  }
  if (const ConfigReader* from = owner("pad_token_id"); from->has("pad_token_id")) {
    config->pad_id = static_cast<Token>(TRY(from->integer("pad_token_id", ids)));
  }
  if (const ConfigReader* from = owner("eos_token_id"); from->has("eos_token_id")) {
    const std::vector<int64_t> eos = TRY(from->integers("eos_token_id", ids, kEosIdsMax));
    for (const int64_t id : eos) config->eos_ids.push_back(static_cast<Token>(id));
  }
  return {};
}

// indexer_types is authoritative where it is given; else every layer has an indexer, or every
// `index_topk_freq`-th past an offset (models.md 3.1).
Status read_indexer(const ConfigReader& text, ModelConfig* config) {
  const int64_t n_layers = config->shape.n_layers;
  ModelShape& shape = config->shape;
  shape.indexer_heads = TRY(text.integer("index_n_heads", kCount));
  shape.indexer_dim = TRY(text.integer("index_head_dim", kWidth));
  // A layer that predicts a further token chooses its own keys.
  for (int64_t i = 0; i < shape.n_predictors; ++i) {
    shape.owns_indexer.set(static_cast<size_t>(n_layers + i));
  }
  if (text.has("indexer_types")) {
    const std::vector<std::string> types =
        TRY(text.texts("indexer_types", static_cast<int>(n_layers)));
    if (static_cast<int64_t>(types.size()) != n_layers) {
      return text.refuse("indexer_types", format("%lld entries", static_cast<long long>(n_layers)),
                         std::to_string(types.size()));
    }
    for (size_t layer = 0; layer < types.size(); ++layer) {
      const std::string& type = types[layer];
      if (type != "full" && type != "shared") {
        return text.refuse("indexer_types", "\"full\" or \"shared\"", type);
      }
      shape.owns_indexer[layer] = type == "full";
    }
    return {};
  }
  const int64_t stride = TRY(text.integer_or("index_topk_freq", kCount, 1));
  const int64_t offset = TRY(text.integer_or("index_skip_topk_offset", {0, n_layers}, 2));
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    shape.owns_indexer[static_cast<size_t>(layer)] =
        std::max<int64_t>(layer - offset + 1, 0) % stride == 0;
  }
  return {};
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view config_json) {
  const Result<Json> parsed = parse_json(config_json, {.bytes_max = kConfigBytesMax});
  if (!parsed.ok()) return invalid_argument("config.json: " + parsed.error().message);
  if (!parsed.value().is_object()) return invalid_argument("config.json: expected an object");
  const ConfigReader root(parsed.value(), "");

  ModelConfig config;
  config.architecture_text = TRY(read_architecture(parsed.value()));
  config.architecture = TRY(find_architecture(config.architecture_text));
  config.model_type = TRY(root.text_or("model_type", ""));
  const bool is_nested = config.architecture == Architecture::kimi_k25;
  const ConfigReader text = is_nested ? TRY(root.object("text_config")) : root;
  config.weights.naming = is_nested ? CheckpointNaming::language_model : CheckpointNaming::plain;

  TRY_OK(read_shape(text, &config.shape));
  config.norm_eps = TRY(text.number("rms_norm_eps", {1e-12, 1e-2}));
  config.positions_max = TRY(text.integer("max_position_embeddings", kPositions));
  config.rope = TRY(read_rope(text));
  config.activation = TRY(text.text("hidden_act"));
  config.has_attention_bias = TRY(text.boolean_or("attention_bias", false));
  config.ties_embeddings = TRY(text.boolean_or("tie_word_embeddings", false));
  config.shape.n_predictors = TRY(text.integer_or("num_nextn_predict_layers", {0, 64}, 0));
  TRY_OK(read_experts(text, &config));
  TRY_OK(read_ids(root, text, &config));
  if (config.architecture == Architecture::glm_moe_dsa) TRY_OK(read_indexer(text, &config));
  const ConfigReader& scheme_owner = root.has("quantization_config") ? root : text;
  TRY_OK(read_weight_scheme(scheme_owner, &config.weights));
  return config;
}

Result<ModelConfig> read_model_config(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const std::string text = TRY(read_text_file(path, kConfigBytesMax));
  Result<ModelConfig> config = parse_model_config(text);
  if (config.ok()) return config;
  Error error = std::move(config).error();
  error.message = dir + "/" + error.message;
  return error;
}

double ModelConfig::attention_scale() const {
  const double scale = 1 / std::sqrt(static_cast<double>(shape.qk_dim()));
  return rope.yarn ? scale * yarn_softmax_factor(*rope.yarn) : scale;
}

KvPageLayout ModelConfig::kv_layout(KvFormat format) const {
  return make_mla_layout(format, static_cast<int32_t>(shape.n_layers),
                         static_cast<int32_t>(shape.kv_lora_rank),
                         static_cast<int32_t>(shape.rope_dim));
}

std::vector<std::string> unsupported_features(const ModelConfig& config) {
  std::vector<std::string> out;
  const auto lacks = [&](bool is_missing, std::string what) {
    if (is_missing) {
      out.push_back(config.architecture_text + ": " + std::move(what) + " is not supported yet");
    }
  };
  lacks(config.shape.n_indexer_layers() > 0, "sparse attention indexer");
  lacks(config.weights.scheme == WeightScheme::other,
        "weight format " + config.weights.scheme_text);
  lacks(config.rope.type != "default" && config.rope.type != "yarn",
        "rope type \"" + excerpt(config.rope.type) + "\"");
  lacks(!config.rope.interleaved, "rope_interleave false");
  lacks(config.activation != "silu", "hidden_act \"" + excerpt(config.activation) + "\"");
  lacks(config.scoring != "sigmoid", "scoring_func \"" + excerpt(config.scoring) + "\"");
  lacks(config.top_k_rule != "noaux_tc", "topk_method \"" + excerpt(config.top_k_rule) + "\"");
  lacks(config.n_groups != 1 || config.top_k_groups != 1, "routing by groups of experts");
  lacks(config.moe_layer_stride != 1, "moe_layer_freq other than 1");
  lacks(config.has_attention_bias, "attention_bias");
  lacks(config.ties_embeddings, "tie_word_embeddings");
  return out;
}

Status check_supported(const ModelConfig& config) {
  std::vector<std::string> missing = unsupported_features(config);
  if (missing.empty()) return {};
  return unsupported(std::move(missing.front()));
}

Status check_vocabulary(const ModelConfig& config, int64_t tokenizer_vocab) {
  if (tokenizer_vocab <= config.shape.vocab_size) return {};
  return invalid_argument(
      format("the tokenizer gives ids up to %lld, the model has %lld embedding rows",
             static_cast<long long>(tokenizer_vocab - 1),
             static_cast<long long>(config.shape.vocab_size)));
}

}  // namespace quire
