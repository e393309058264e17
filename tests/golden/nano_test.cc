// The trained model of models/kimi-nano against transformers in float32 on the same weights: real
// prompts, real routers. The recipe's golden.py wrote eval/golden_logits.jsonl:
//   {"ids": [...], "top": [[id, logit], ...], "greedy": [...], "margins": [...]}
// `top` are the largest logits after the last id; `greedy` continues the ids, and margins[i] is the
// distance between the two largest logits where greedy[i] was chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/checkpoint.h"
#include "golden_backend.h"
#include "model/model.h"
#include "model/single_sequence.h"
#include "weights/loader.h"

namespace quire {
namespace {

constexpr int64_t kTokensMax = 4096;

struct Way {
  std::string name;
  Device device;
  int64_t chunk_tokens;
};

std::string nano_dir() { return std::string(QUIRE_SOURCE_DIR) + "/models/kimi-nano"; }

// As golden_test.cc derives it for BF16: what one logit may be off by, in standard deviations of
// the logits.
double logit_tolerance(const std::vector<float>& logits, int64_t n_layers) {
  double sum = 0;
  double squares = 0;
  for (const float logit : logits) {
    sum += logit;
    squares += static_cast<double>(logit) * logit;
  }
  const auto n = static_cast<double>(logits.size());
  const double deviation = std::sqrt(squares / n - sum / n * (sum / n));
  const double bound =
      2 * std::sqrt(24.0 * static_cast<double>(n_layers)) * 0x1p-9 / std::sqrt(3.0);
  return 6 * bound * deviation;
}

class KimiNano : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const std::string path = nano_dir() + "/eval/golden_logits.jsonl";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    backend_ = make_backend(GetParam().device);
    if (backend_ == nullptr) GTEST_SKIP() << "no CUDA device here";
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      goldens_.push_back(parse_json(line).value());
    }
    ASSERT_FALSE(goldens_.empty());
    config_ = read_model_config(nano_dir()).value();
    weights_ = load_weights({.checkpoint = Checkpoint::open(nano_dir()).value(),
                             .shape = config_.shape,
                             .source = config_.weights},
                            *backend_, nullptr)
                   .value();
    model_ = make_model(config_, *weights_, *backend_,
                        {.tokens_max = GetParam().chunk_tokens, .logits_max = 1}, {})
                 .value();
  }

  // Logits after the last id, and after each token of `greedy` but the last: [greedy, vocab].
  std::vector<std::vector<float>> run(const std::vector<Token>& ids,
                                      const std::vector<Token>& greedy) {
    const auto chunk_tokens = static_cast<size_t>(GetParam().chunk_tokens);
    SingleSequence sequence =
        SingleSequence::make(*model_, *backend_, kTokensMax, GetParam().chunk_tokens).value();
    std::vector<float> logits;
    for (size_t at = 0; at < ids.size(); at += chunk_tokens) {
      const size_t size = std::min(chunk_tokens, ids.size() - at);
      logits = sequence.feed(std::span(ids).subspan(at, size), 1);
    }
    std::vector<std::vector<float>> out{logits};
    for (size_t i = 0; i + 1 < greedy.size(); ++i) {
      out.push_back(sequence.feed(std::span(greedy).subspan(i, 1), 1));
    }
    return out;
  }

  std::vector<Json> goldens_;
  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Model> model_;
};

TEST_P(KimiNano, LogitsAndGreedyTokensAreThoseOfTransformers) {
  double worst_share = 0;
  int64_t compared = 0;
  int64_t too_close = 0;
  for (size_t line = 0; line < goldens_.size(); ++line) {
    SCOPED_TRACE("line " + std::to_string(line + 1));
    const Json& golden = goldens_[line];
    const auto ids = golden.at("ids").get<std::vector<Token>>();
    const auto greedy = golden.at("greedy").get<std::vector<Token>>();
    const auto margins = golden.at("margins").get<std::vector<double>>();
    ASSERT_EQ(margins.size(), greedy.size());
    const std::vector<std::vector<float>> logits = run(ids, greedy);
    for (const Json& top : golden.at("top")) {
      const double tolerance = logit_tolerance(logits[0], config_.shape.n_layers);
      const double found = logits[0].at(top.at(0).get<size_t>());
      const double difference = std::fabs(found - top.at(1).get<double>());
      worst_share = std::max(worst_share, difference / tolerance);
      EXPECT_LE(difference, tolerance) << "logit of token " << top.at(0);
    }
    for (size_t i = 0; i < greedy.size(); ++i) {
      // Both of the two largest logits may be off.
      if (margins[i] <= 2 * logit_tolerance(logits[i], config_.shape.n_layers)) {
        ++too_close;
        continue;
      }
      ++compared;
      const auto best = std::max_element(logits[i].begin(), logits[i].end());
      EXPECT_EQ(best - logits[i].begin(), greedy[i]) << "greedy token " << i;
    }
  }
  std::printf("worst logit %.2f of its tolerance; %lld greedy tokens compared, %lld too close\n",
              worst_share, static_cast<long long>(compared), static_cast<long long>(too_close));
  EXPECT_GT(compared, too_close);
}

std::string name_of(const testing::TestParamInfo<Way>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(OnCpu, KimiNano, testing::Values(Way{"cpu", Device::cpu, 512}), name_of);
// Chunks long enough for attention by head, and too short.
INSTANTIATE_TEST_SUITE_P(OnCuda, KimiNano,
                         testing::Values(Way{"cuda", Device::cuda, 512},
                                         Way{"cuda_short_chunks", Device::cuda, 100}),
                         name_of);

}  // namespace
}  // namespace quire
