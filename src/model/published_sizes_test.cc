// The weight table against what publishers say that their checkpoints weigh.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "model/config.h"
#include "weights/dummy.h"
#include "weights/rank_bytes.h"

namespace quire {
namespace {

std::string published(const std::string& name) {
  return std::string(QUIRE_SOURCE_DIR) + "/../shared/data/hf/" + name;
}

class PublishedSizes : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(published(""))) {
      GTEST_SKIP() << "published configs are not beside the repository";
    }
  }

  static Json read(const std::string& name) {
    return parse_json(read_text_file(published(name) + "/config.json", 1 << 20).value()).value();
  }
  static Checkpoint checkpoint(const ModelConfig& config) {
    return dummy_checkpoint("published", config.shape, config.weights, LayerScope::with_predictors);
  }
};

TEST_F(PublishedSizes, Glm52InFp8ToTheByte) {
  const ModelConfig config = read_model_config(published("zai-org--GLM-5.2-FP8")).value();
  const Checkpoint whole = checkpoint(config);
  EXPECT_EQ(whole.data_bytes(), 755'617'140'416);
  EXPECT_EQ(whole.tensors().size(), 118'629U);
}

TEST_F(PublishedSizes, KimiK26InInt4) {
  const ModelConfig config = read_model_config(published("moonshotai--Kimi-K2.6")).value();
  EXPECT_NEAR(static_cast<double>(checkpoint(config).data_bytes()), 594.2e9, 0.05e9);
}

TEST_F(PublishedSizes, Glm52WithInt4Experts) {
  Json glm = read("zai-org--GLM-5.2");
  glm["quantization_config"] = read("moonshotai--Kimi-K2.6")["text_config"]["quantization_config"];
  const ModelConfig config = parse_model_config(dump_json(glm)).value();
  const double gib = static_cast<double>(checkpoint(config).data_bytes()) / (1 << 30);
  EXPECT_NEAR(gib, 419.9, 0.05);
}

// Ranks share what is cut, repeat what is not, and hold W_UK and W_UV in BF16; layers that predict
// are nobody's.
TEST_F(PublishedSizes, RanksOfKimiK26) {
  const ModelConfig config = read_model_config(published("moonshotai--Kimi-K2.6")).value();
  const Checkpoint whole = checkpoint(config);
  const auto tensors = resolve_checkpoint(whole, config.shape, config.weights).value();
  const auto bytes = [&](int64_t n_ranks) {
    return rank_weight_bytes(tensors, config.shape, {.rank = 0, .n_ranks = n_ranks}).value();
  };
  EXPECT_EQ(bytes(1), whole.data_bytes());
  // What an H200 was seen to hold of one of eight (docs/formats/weights.md).
  EXPECT_NEAR(static_cast<double>(bytes(8)), 76.2e9, 0.1e9);
  EXPECT_GT(bytes(16), bytes(1) / 16);
  EXPECT_FALSE(rank_weight_bytes(tensors, config.shape, {.rank = 0, .n_ranks = 48}).ok());
}

TEST_F(PublishedSizes, AnFp8LatentMapIsHeldInBf16) {
  const ModelConfig config = read_model_config(published("zai-org--GLM-5.2-FP8")).value();
  const Checkpoint whole = dummy_checkpoint("published", config.shape, config.weights);
  const auto tensors = resolve_checkpoint(whole, config.shape, config.weights).value();
  const int64_t kv_b = 64 * (192 + 256) * 512;  // weights of a layer's map
  const int64_t scales = kv_b / (128 * 128) * 4;
  EXPECT_EQ(rank_weight_bytes(tensors, config.shape, {}).value(),
            whole.data_bytes() + 78 * (kv_b - scales));
}

}  // namespace
}  // namespace quire
