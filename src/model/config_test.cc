#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string published(const std::string& name) {
  return std::string(QUIRE_SOURCE_DIR) + "/../shared/data/hf/" + name;
}

// The config of Kimi K2 Instruct, in our own order of fields.
Json kimi() {
  return parse_json(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "vocab_size": 163840,
    "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "first_k_dense_replace": 1, "num_attention_heads": 64,
    "num_key_value_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
    "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "moe_layer_freq": 1, "hidden_act": "silu", "attention_bias": false,
    "tie_word_embeddings": false, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072, "rope_theta": 50000.0, "bos_token_id": 163584,
    "eos_token_id": 163585,
    "rope_scaling": {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
      "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128]}
  })")
      .value();
}

Result<ModelConfig> parse(const Json& json) { return parse_model_config(dump_json(json)); }

void expect_refused(const Json& json, const std::string& reason,
                    ErrorCode code = ErrorCode::invalid_argument) {
  const Result<ModelConfig> config = parse(json);
  ASSERT_FALSE(config.ok()) << reason;
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_THAT(config.error().message, HasSubstr(reason));
}

void expect_unsupported(const Json& json, const std::string& what) {
  const Result<ModelConfig> config = parse(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const Status status = check_supported(config.value());
  ASSERT_FALSE(status.ok()) << what;
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_THAT(status.error().message, HasSubstr(what));
}

TEST(ModelConfig, KimiK2) {
  const Result<ModelConfig> parsed = parse(kimi());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const ModelConfig& config = parsed.value();
  EXPECT_TRUE(check_supported(config).ok());
  EXPECT_EQ(config.shape.n_experts, 384);
  EXPECT_EQ(config.shape.q_lora_rank, 1536);
  EXPECT_EQ(config.weights.scheme, WeightScheme::fp8_block128);
  EXPECT_EQ(config.weights.naming, CheckpointNaming::plain);
  EXPECT_NEAR(config.attention_scale(), 0.1308608, 1e-7);
  EXPECT_EQ(config.kv_layout(KvFormat::fp8_e4m3_584).page_bytes, 2'279'936);
  EXPECT_EQ(config.kv_layout(KvFormat::bf16).page_bytes, 4'497'408);
  EXPECT_THAT(config.eos_ids, ElementsAre(163585));
}

struct Published {
  const char* name;
  const char* unsupported;  // null: runs
};

TEST(ModelConfig, EveryPublishedConfigParses) {
  if (!std::filesystem::exists(published(""))) {
    GTEST_SKIP() << "published configs are not beside the repository";
  }
  const std::vector<Published> models = {
      {"moonshotai--Kimi-K2-Instruct", nullptr},
      {"moonshotai--Kimi-K2.5", nullptr},
      {"moonshotai--Kimi-K2.6", nullptr},
      {"nvidia--Kimi-K2.6-NVFP4", nullptr},
      {"nvidia--GLM-5.2-NVFP4", "sparse attention indexer"},
      {"zai-org--GLM-5", "GlmMoeDsaForCausalLM: sparse attention indexer is not supported yet"},
      {"zai-org--GLM-5-FP8", "sparse attention indexer"},
      {"zai-org--GLM-5.1", "sparse attention indexer"},
      {"zai-org--GLM-5.2", "sparse attention indexer"},
      {"zai-org--GLM-5.2-FP8", "sparse attention indexer"},
  };
  for (const Published& model : models) {
    SCOPED_TRACE(model.name);
    const Result<ModelConfig> config = read_model_config(published(model.name));
    ASSERT_TRUE(config.ok()) << config.error().message;
    const Status status = check_supported(config.value());
    ASSERT_EQ(status.ok(), model.unsupported == nullptr);
    if (status.ok()) continue;
    EXPECT_THAT(status.error().message, HasSubstr(model.unsupported));
  }
}

TEST(ModelConfig, PublishedFigures) {
  if (!std::filesystem::exists(published(""))) {
    GTEST_SKIP() << "published configs are not beside the repository";
  }
  const ModelConfig k26 = read_model_config(published("moonshotai--Kimi-K2.6")).value();
  EXPECT_EQ(k26.weights.scheme, WeightScheme::int4_group);
  EXPECT_EQ(k26.weights.group, 32);
  EXPECT_EQ(k26.weights.naming, CheckpointNaming::language_model);
  EXPECT_EQ(k26.weights.ignored.size(), 4U);
  EXPECT_NEAR(k26.attention_scale(), 0.1446796, 1e-7);
  EXPECT_EQ(k26.positions_max, 262144);
  EXPECT_THAT(k26.eos_ids, ElementsAre(163586));
  const ModelConfig glm = read_model_config(published("zai-org--GLM-5.2")).value();
  EXPECT_EQ(glm.shape.n_indexer_layers(), 21);
  EXPECT_EQ(glm.shape.n_predictors, 1);
  EXPECT_EQ(glm.shape.rope_dim, 64);
  EXPECT_DOUBLE_EQ(glm.attention_scale(), 0.0625);
  EXPECT_DOUBLE_EQ(glm.rope.theta, 8e6);
  EXPECT_THAT(glm.eos_ids, ElementsAre(154820, 154827, 154829));
  EXPECT_EQ(read_model_config(published("zai-org--GLM-5.1")).value().shape.n_indexer_layers(), 78);
}

TEST(ModelConfig, EverySizeIsAnIntegerInItsRange) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size",
        "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok",
        "max_position_embeddings", "first_k_dense_replace"}) {
    for (const Json& bad : {Json(-1), Json(1.0), Json("64"), Json(true), Json(nullptr),
                            Json(uint64_t{1} << 63), Json(int64_t{1} << 40)}) {
      Json json = kimi();
      json[key] = bad;
      expect_refused(json, std::string("config.json: ") + key + ": expected an integer in");
    }
    Json json = kimi();
    json.erase(key);
    expect_refused(json, std::string(key) + ": expected an integer in");
  }
}

TEST(ModelConfig, SizesAgreeWithEachOther) {
  Json json = kimi();
  json["num_experts_per_tok"] = 385;
  expect_refused(json, "num_experts_per_tok: expected an integer in [1, 384], found 385");
  json = kimi();
  json["first_k_dense_replace"] = 62;
  expect_refused(json, "first_k_dense_replace: expected an integer in [0, 61]");
  json = kimi();
  json["num_key_value_heads"] = 8;
  expect_refused(json, "num_key_value_heads: expected 64 (every head), found 8");
  json = kimi();
  json["qk_rope_head_dim"] = 63;
  expect_refused(json, "qk_rope_head_dim: expected an even size");
  json = kimi();
  json["eos_token_id"] = 163840;
  expect_refused(json, "eos_token_id: expected an integer in [0, 163839]");
}

TEST(ModelConfig, OtherFieldsAreTyped) {
  Json json = kimi();
  json["rms_norm_eps"] = 0;
  expect_refused(json, "rms_norm_eps");
  json = kimi();
  json["norm_topk_prob"] = 1;
  expect_refused(json, "norm_topk_prob: expected true or false, found 1");
  json = kimi();
  json["hidden_act"] = 7;
  expect_refused(json, "hidden_act: expected a short string");
  json = kimi();
  json["rope_scaling"]["factor"] = "32";
  expect_refused(json, "config.json: rope_scaling.factor: expected a number");
  json = kimi();
  json["rope_scaling"] = 1;
  expect_refused(json, "rope_scaling: expected an object");
  json = kimi();
  json["architectures"] = Json::array();
  expect_refused(json, "architectures");
  EXPECT_FALSE(parse_model_config("[]").ok());
  EXPECT_FALSE(parse_model_config("{\"a\":1,\"a\":1}").ok());
  EXPECT_FALSE(parse_model_config("").ok());
}

TEST(ModelConfig, AnUnknownArchitectureIsUnsupported) {
  Json json = kimi();
  json["architectures"][0] = "LlamaForCausalLM";
  expect_refused(json, "architecture \"LlamaForCausalLM\" is not supported",
                 ErrorCode::unsupported);
}

TEST(ModelConfig, BothSpellingsOfRope) {
  Json json = kimi();
  Json rope = json["rope_scaling"];
  rope.erase("type");
  rope["rope_type"] = "yarn";
  rope["rope_theta"] = 50000.0;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = rope;
  Result<ModelConfig> config = parse(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_NEAR(config.value().attention_scale(), 0.1308608, 1e-7);
  EXPECT_DOUBLE_EQ(config.value().rope.theta, 50000);

  json["rope_scaling"] = rope;
  EXPECT_TRUE(parse(json).ok());
  json["rope_scaling"]["factor"] = 64.0;
  expect_refused(json, "rope_scaling and rope_parameters differ");

  json = kimi();
  json["rope_scaling"] = nullptr;
  config = parse(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config.value().rope.yarn.has_value());
  json.erase("rope_theta");
  expect_refused(json, "rope_theta");
}

TEST(ModelConfig, WhatIsNotBuiltYetIsNamed) {
  const std::vector<std::pair<const char*, Json>> changes = {
      {"hidden_act", "gelu"},     {"scoring_func", "softmax"}, {"topk_method", "greedy"},
      {"moe_layer_freq", 2},      {"attention_bias", true},    {"tie_word_embeddings", true},
      {"rope_interleave", false},
  };
  for (const auto& [key, value] : changes) {
    Json json = kimi();
    json[key] = value;
    expect_unsupported(json, key);
  }
  Json json = kimi();
  json["n_group"] = 8;
  expect_unsupported(json, "groups of experts");
  json = kimi();
  json["rope_scaling"]["type"] = "linear";
  expect_unsupported(json, "rope type \"linear\"");
}

TEST(ModelConfig, WeightSchemesThatAreNotBuiltYetAreNamed) {
  Json json = kimi();
  json["quantization_config"]["weight_block_size"] = {64, 64};
  expect_unsupported(json, "fp8 in blocks other than 128 x 128");
  json = kimi();
  json["quantization_config"].erase("weight_block_size");
  expect_unsupported(json, "fp8 without weight_block_size");
  json = kimi();
  json["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  expect_unsupported(json, "weight format awq");
  json["quantization_config"] = {{"bits", 4}};
  expect_refused(json, "quantization_config.quant_method");
}

TEST(ModelConfig, CompressedTensors) {
  Json weights = {{"num_bits", 4},       {"type", "int"},     {"symmetric", true},
                  {"strategy", "group"}, {"group_size", 128}, {"actorder", nullptr}};
  const auto with = [](const Json& scheme) {
    Json json = kimi();
    json["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                   {"format", "pack-quantized"},
                                   {"config_groups", {{"group_0", {{"weights", scheme}}}}},
                                   {"ignore", {"lm_head", "re:.*self_attn.*"}}};
    return json;
  };
  const Result<ModelConfig> config = parse(with(weights));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config.value().weights.scheme, WeightScheme::int4_group);
  EXPECT_EQ(config.value().weights.group, 128);
  EXPECT_TRUE(check_supported(config.value()).ok());
  const std::vector<std::pair<const char*, Json>> changes = {{"num_bits", 8},
                                                             {"symmetric", false},
                                                             {"strategy", "channel"},
                                                             {"group_size", 64},
                                                             {"actorder", "weight"}};
  for (const auto& [key, value] : changes) {
    Json changed = weights;
    changed[key] = value;
    expect_unsupported(with(changed), "weight format compressed-tensors");
  }
  Json json = with(weights);
  json["quantization_config"]["config_groups"]["group_1"] = Json::object();
  expect_refused(json, "config_groups: expected an object with one object in it");
  json = with(weights);
  json["quantization_config"]["ignore"] = {"re:(a"};
  expect_refused(json, "re:(a", ErrorCode::unsupported);
}

TEST(ModelConfig, Fp8LeavesModulesAloneByRegularExpression) {
  Json json = kimi();
  json["quantization_config"] = {{"quant_method", "fp8"},
                                 {"weight_block_size", {128, 128}},
                                 {"modules_to_not_convert", {"lm_head", ".*self_attn"}}};
  const Result<ModelConfig> config = parse(json);
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_EQ(config.value().weights.ignored.size(), 2U);
  EXPECT_TRUE(config.value().weights.ignored[1].matches("layers.3.self_attn.o_proj"));
  json["quantization_config"]["modules_to_not_convert"] = {"(a"};
  expect_refused(json, "re:(a", ErrorCode::unsupported);
}

TEST(ModelConfig, TheTokenizerFitsTheEmbedding) {
  const ModelConfig config = parse(kimi()).value();
  EXPECT_TRUE(check_vocabulary(config, 163840).ok());
  EXPECT_TRUE(check_vocabulary(config, 163000).ok());
  const Status status = check_vocabulary(config, 163841);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "the tokenizer gives ids up to 163840, the model has 163840 embedding rows");
}

}  // namespace
}  // namespace quire
