// ModelConfig: a model's config.json, read strictly.
//
// Two steps, so that `quire inspect` can describe a model that cannot run yet: `parse` accepts
// every well-formed config of a known architecture, `check_supported` says what this build lacks.
// Sizes are bounded and agree with each other; they are checked against the weights by
// weights/loader.h. Not here: sampling defaults and the tokenizer's ids (text/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/kv_page.h"
#include "weights/model_shape.h"
#include "weights/weight_scheme.h"

namespace quire {

enum class Architecture : uint8_t {
  deepseek_v3,  // DeepseekV3ForCausalLM: DeepSeek V3, Moonlight, Kimi K2
  kimi_k25,     // KimiK25ForConditionalGeneration: the same text model beside a vision tower
  glm_moe_dsa,  // GlmMoeDsaForCausalLM: GLM-5, with a sparse attention indexer
};

// Rotary frequencies that are stretched to contexts past the trained one.
// Source: Peng et al. 2023 (arXiv 2309.00071).
struct YarnConfig {
  double factor = 1;                   // context is `factor` times the trained one
  int64_t original_max_positions = 0;  // the trained one, tokens
  double beta_fast = 32;               // rotations within the trained context above which a pair is
                                       // left alone
  double beta_slow = 1;                // and below which it is interpolated fully
  double mscale = 0;                   // 0: not given
  double mscale_all_dim = 0;           // 0: not given
  std::optional<double> attention_factor;  // of cos and sin; else it follows from mscale
};

struct RopeConfig {
  double theta = 0;
  std::string type = "default";  // as written: "default", "yarn" or one that is not supported
  std::optional<YarnConfig> yarn;
  bool interleaved = true;  // pairs (2i, 2i + 1); else (i, i + dim / 2)
};

struct ModelConfig {
  Architecture architecture = Architecture::deepseek_v3;
  std::string architecture_text;  // as written
  std::string model_type;         // as written
  ModelShape shape;
  WeightSource weights;

  double norm_eps = 0;
  RopeConfig rope;
  int64_t positions_max = 0;     // max_position_embeddings: tokens of prompt and output together
  double routed_scaling = 1;     // routed_scaling_factor
  bool normalise_top_k = false;  // norm_topk_prob

  std::string activation;  // "silu"
  std::string scoring;     // "sigmoid"
  std::string top_k_rule;  // "noaux_tc"
  int64_t n_groups = 1;    // of experts, of which `top_k_groups` are eligible for a token
  int64_t top_k_groups = 1;
  int64_t moe_layer_stride = 1;
  bool has_attention_bias = false;
  bool ties_embeddings = false;

  std::optional<Token> bos_id;
  std::optional<Token> pad_id;
  std::vector<Token> eos_ids;  // may lack the one that ends a turn: text/ knows it

  // The softmax scale of attention: (nope + rope)^-1/2, times YaRN's m^2.
  double attention_scale() const;
  KvPageLayout kv_layout(KvFormat format) const;
};

// Errors: invalid_argument (naming the field, the expected and the found) and unsupported (an
// architecture of which nothing is known).
Result<ModelConfig> parse_model_config(std::string_view config_json);
// `dir`/config.json. Errors: as above and as read_text_file.
Result<ModelConfig> read_model_config(const std::string& dir);

// What this build cannot do yet, one sentence each: empty when the model can run.
std::vector<std::string> unsupported_features(const ModelConfig& config);
// unsupported, naming the first of them.
Status check_supported(const ModelConfig& config);

// F3: every id that the tokenizer can give has a row in the embedding. `tokenizer_vocab` is one
// past its largest id.
Status check_vocabulary(const ModelConfig& config, int64_t tokenizer_vocab);

}  // namespace quire
