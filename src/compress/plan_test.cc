#include "compress/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "compress/quantization_config.h"
#include "weights/dummy.h"

namespace quire {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// One dense layer, one mixture of two experts, and a layer that predicts.
ModelShape small_shape() {
  ModelShape shape = {.vocab_size = 16,
                      .hidden_size = 256,
                      .n_layers = 2,
                      .n_dense_layers = 1,
                      .n_heads = 2,
                      .q_lora_rank = 32,
                      .kv_lora_rank = 32,
                      .nope_dim = 8,
                      .rope_dim = 4,
                      .v_dim = 16,
                      .dense_inner = 128,
                      .expert_inner = 128,
                      .n_experts = 2,
                      .top_k = 1,
                      .n_shared_experts = 1,
                      .n_predictors = 1,
                      .indexer_heads = 2,
                      .indexer_dim = 16};
  shape.owns_indexer.set(1);
  return shape;
}

class Planning : public testing::Test {
 protected:
  Result<CompressPlan> plan(CompressOptions options) {
    return plan_compression(checkpoint(), shape_, source_, options);
  }
  const Checkpoint& checkpoint() {
    if (!checkpoint_) {
      checkpoint_.emplace(dummy_checkpoint("dummy", shape_, source_, LayerScope::with_predictors));
    }
    return *checkpoint_;
  }
  void include(CompressOptions* options, const std::string& text) {
    options->include.push_back(NamePattern::parse(text).value());
    options->pattern_texts.push_back("--include " + text);
  }
  static std::map<std::string, std::string> arrays(const CompressPlan& plan) {
    std::map<std::string, std::string> out;
    for (const OutputShard& shard : plan.shards) {
      for (const TensorEntry& entry : shard.arrays) out[entry.name] = describe(entry);
    }
    return out;
  }

  ModelShape shape_ = small_shape();
  WeightSource source_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(Planning, Int4TakesTheExpertsAndNothingElse) {
  const CompressPlan planned = plan({}).value();
  // Two experts of three maps, in the mixture and in the layer that predicts.
  EXPECT_EQ(planned.quantised.size(), 12U);
  const auto found = arrays(planned);
  const std::string up = "model.layers.1.mlp.experts.1.up_proj";
  EXPECT_EQ(found.at(up + ".weight_packed"), "I32 [128, 32]");
  EXPECT_EQ(found.at(up + ".weight_scale"), "BF16 [128, 8]");
  EXPECT_EQ(found.at(up + ".weight_shape"), "I64 [2]");
  EXPECT_FALSE(found.contains(up + ".weight"));
  EXPECT_EQ(found.at("model.layers.0.mlp.up_proj.weight"), "BF16 [128, 256]");
  EXPECT_TRUE(found.contains("model.layers.2.mlp.experts.0.up_proj.weight_packed"));
  EXPECT_THAT(planned.kept, Contains("model.layers.1.self_attn.indexer.wq_b"));
}

TEST_F(Planning, ArraysFollowEachOtherAtMultiplesOfTheirElements) {
  const CompressPlan planned = plan({}).value();
  ASSERT_EQ(planned.shards.size(), 1U);
  const OutputShard& shard = planned.shards.front();
  auto end = static_cast<int64_t>(safetensors_header(shard.arrays).size());
  for (const TensorEntry& entry : shard.arrays) {
    EXPECT_EQ(entry.offset, end) << entry.name;
    EXPECT_EQ(entry.offset % size_of(entry.dtype), 0) << entry.name;
    end += entry.bytes;
  }
  EXPECT_EQ(shard.bytes, end);
  std::vector<int> written(shard.arrays.size());
  for (const CompressJob& job : shard.jobs) {
    for (const size_t array : job.arrays) ++written[array];
  }
  EXPECT_THAT(written, testing::Each(1));
}

TEST_F(Planning, SmallShardsHoldTheSameArrays) {
  CompressOptions options;
  const CompressPlan whole = plan(options).value();
  options.shard_bytes = 20'000;
  const CompressPlan cut = plan(options).value();
  EXPECT_GT(cut.shards.size(), 5U);
  EXPECT_EQ(arrays(cut), arrays(whole));
  EXPECT_EQ(cut.bytes_out, whole.bytes_out);
  EXPECT_EQ(cut.bytes_in, whole.bytes_in);
}

TEST_F(Planning, FromFp8TheRestBecomesBf16) {
  source_.scheme = WeightScheme::fp8_block128;
  const auto found = arrays(plan({}).value());
  EXPECT_EQ(found.at("model.layers.1.self_attn.kv_b_proj.weight"), "BF16 [48, 32]");
  EXPECT_FALSE(found.contains("model.layers.1.self_attn.kv_b_proj.weight_scale_inv"));
  EXPECT_TRUE(found.contains("model.layers.1.mlp.experts.0.up_proj.weight_packed"));
}

TEST_F(Planning, Fp8OfFp8StaysAsItIs) {
  source_.scheme = WeightScheme::fp8_block128;
  const CompressPlan planned = plan({.format = TargetFormat::fp8}).value();
  EXPECT_EQ(planned.bytes_in, planned.bytes_out);
  for (const CompressJob& job : planned.shards.front().jobs) {
    EXPECT_EQ(job.conversion, Conversion::copy);
  }
}

TEST_F(Planning, WhatIsPackedIsRefused) {
  source_.scheme = WeightScheme::int4_group;
  source_.group = 32;
  const auto refused = plan({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("is packed already"));
}

TEST_F(Planning, RefusesWhatNoReaderTakes) {
  CompressOptions options;
  include(&options, "re:.*kv_b_proj");
  EXPECT_THAT(plan(options).error().message, HasSubstr("cannot be int4"));
  CompressOptions uneven;
  uneven.group = 128;
  include(&uneven, "re:.*q_b_proj");  // 32 inputs
  EXPECT_THAT(plan(uneven).error().message, HasSubstr("32 inputs are not whole groups of 128"));
}

TEST_F(Planning, TheConfigLeavesAloneExactlyWhatIsKept) {
  CompressOptions options;
  include(&options, "re:.*shared_experts.*");
  options.exclude.push_back(NamePattern::parse("model.layers.1.mlp.experts.0.up_proj").value());
  options.pattern_texts.push_back("--exclude model.layers.1.mlp.experts.0.up_proj");
  const CompressPlan planned = plan(options).value();
  const Json config = parse_json(compressed_config("{\"a\":1}", planned).value()).value();
  EXPECT_EQ(config["a"], 1);
  const auto ignore = config["quantization_config"]["ignore"].get<std::vector<std::string>>();
  std::vector<NamePattern> patterns;
  for (const std::string& text : ignore) patterns.push_back(NamePattern::parse(text).value());
  const auto is_ignored = [&](const std::string& module) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const NamePattern& pattern) { return pattern.matches(module); });
  };
  for (const std::string& module : planned.quantised) EXPECT_FALSE(is_ignored(module)) << module;
  for (const std::string& module : planned.kept) EXPECT_TRUE(is_ignored(module)) << module;
  EXPECT_THAT(ignore, Not(Contains("re:.*shared_experts.*")));
}

TEST_F(Planning, AnInputsOwnSchemeIsReplaced) {
  const CompressPlan planned = plan({}).value();
  const std::string before =
      R"({"quantization_config":{"quant_method":"fp8"},"text_config":{"b":2}})";
  const Json config = parse_json(compressed_config(before, planned).value()).value();
  EXPECT_FALSE(config.contains("quantization_config"));
  EXPECT_EQ(config["text_config"]["quantization_config"]["format"], "pack-quantized");
  EXPECT_EQ(config["text_config"]["b"], 2);
}

}  // namespace
}  // namespace quire
