// Log-probabilities of prompts, through the engine that serves, against transformers.
// The recipe's golden_prompts.py wrote models/kimi-nano/eval/golden_prompts.jsonl:
//   {"ids": [...], "logprobs": [...], "bf16": [...], "best": [...]}
// one value for each token after the first: its log-probability in float32, the same from
// transformers in BF16, and that of the likeliest token in its place.
//
// Inside a prompt are tokens that nothing foretells, and there a router's choice between two
// experts may hang on the last bit: single values differ by whole nats, in transformers' own BF16
// as here. So it is the whole that is compared, with what that BF16 does as the measure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "engine/test_requests.h"
#include "format/checkpoint.h"
#include "golden_backend.h"
#include "model/model.h"
#include "weights/loader.h"

namespace quire {
namespace {

std::string nano_dir() { return std::string(QUIRE_SOURCE_DIR) + "/models/kimi-nano"; }

// What one value may be off by without being counted: ten times transformers' mean difference. Its
// BF16 passes it 1 time in 100.
constexpr double kFar = 0.6;

// How far values are from float32's: the mean distance, its sign kept and not, and how many are
// far.
struct Distance {
  double sum = 0, signed_sum = 0;
  int64_t n = 0, far = 0;

  void add(double found, double expected) {
    const double off = found - expected;
    sum += std::fabs(off);
    signed_sum += off;
    far += std::fabs(off) > kFar ? 1 : 0;
    ++n;
  }
  double mean() const { return sum / static_cast<double>(n); }
  double bias() const { return signed_sum / static_cast<double>(n); }
};

class PromptLogprobs : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    backend_ = make_backend(GetParam());
    if (backend_ == nullptr) GTEST_SKIP() << "no CUDA device here";
    config_ = read_model_config(nano_dir()).value();
    weights_ = load_weights({.checkpoint = Checkpoint::open(nano_dir()).value(),
                             .shape = config_.shape,
                             .source = config_.weights},
                            *backend_, nullptr)
                   .value();
    // Chunks of no round size, and far fewer rows of logits than tokens in one.
    engine_config_ = {.n_pages = 200,
                      .vocab_size = static_cast<int32_t>(config_.shape.vocab_size),
                      .context_tokens = 4096,
                      .running_requests_max = 12,
                      .queued_requests_max = 16,
                      .chunked_prefill_tokens = 300,
                      .overlap = Overlap::on};
    const PlanLimits limits = executor_limits(engine_config_);
    model_ = make_model(config_, *weights_, *backend_,
                        {.tokens_max = limits.tokens_max, .logits_max = limits.rows_max}, {})
                 .value();
    executor_ =
        ModelExecutor::make(*backend_, *model_, limits, {.record = RecordSteps::yes}).value();
    engine_ = std::make_unique<Engine>(engine_config_, *executor_, clock_, log_);
    std::ifstream file(nano_dir() + "/eval/golden_prompts.jsonl");
    for (std::string line; std::getline(file, line);) {
      goldens_.push_back(parse_json(line).value());
    }
    ASSERT_EQ(goldens_.size(), 8U);
  }

  // All prompts at once. With `tops` alternatives a token; none: only an answer.
  std::vector<Heard> run(std::optional<int32_t> tops) {
    std::vector<Heard> heard(goldens_.size());
    for (size_t i = 0; i < goldens_.size(); ++i) {
      GenerateRequest request{.prompt = goldens_[i].at("ids").get<std::vector<Token>>(),
                              .max_new_tokens = 3,
                              .prompt_logprobs = tops};
      request.sampling.temperature = 0;
      CHECK(engine_->add(std::move(request), hear(heard[i])).ok());
    }
    while (!engine_->is_idle()) engine_->step();
    EXPECT_TRUE(engine_->audit().ok());
    return heard;
  }
  ModelConfig config_;
  EngineConfig engine_config_;
  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  std::vector<Json> goldens_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(PromptLogprobs, AreThoseOfTransformers) {
  const std::vector<Heard> heard = run(2);
  Distance ours, best_ours, theirs;
  for (size_t line = 0; line < goldens_.size(); ++line) {
    SCOPED_TRACE("line " + std::to_string(line + 1));
    const auto ids = goldens_[line].at("ids").get<std::vector<Token>>();
    const auto exact = goldens_[line].at("logprobs").get<std::vector<double>>();
    const auto bf16 = goldens_[line].at("bf16").get<std::vector<double>>();
    const auto best = goldens_[line].at("best").get<std::vector<double>>();
    const std::vector<GeneratedToken> found = heard[line].scores();
    ASSERT_EQ(found.size(), ids.size() - 1);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].token, ids[i + 1]) << "place " << i + 1;
      ASSERT_EQ(found[i].top.size(), 2U);
      EXPECT_GE(found[i].top[0].second, found[i].logprob);
      ours.add(static_cast<double>(found[i].logprob), exact[i]);
      best_ours.add(static_cast<double>(found[i].top[0].second), best[i]);
      theirs.add(bf16[i], exact[i]);
    }
  }
  std::printf(
      "mean distance from float32 %.4f nats, transformers in BF16 %.4f, over %lld tokens; "
      "far: %lld and %lld\n",
      ours.mean(), theirs.mean(), static_cast<long long>(ours.n), static_cast<long long>(ours.far),
      static_cast<long long>(theirs.far));
  EXPECT_LE(ours.mean(), 1.25 * theirs.mean());
  EXPECT_LE(best_ours.mean(), 1.25 * theirs.mean());
  EXPECT_LE(ours.far, 2 * theirs.far);
  EXPECT_LE(std::fabs(ours.bias()), 0.02);
}

// What was cached is computed again for those who ask, and the answer is nobody's other.
TEST_P(PromptLogprobs, ACachedPromptHasThemToo) {
  const std::vector<Heard> plain = run(std::nullopt);
  const std::vector<Heard> cached = run(std::nullopt);
  const std::vector<Heard> scored = run(0);
  bool was_cached = false;
  for (size_t i = 0; i < goldens_.size(); ++i) {
    was_cached = was_cached || cached[i].last().cached_tokens > 0;
    EXPECT_EQ(scored[i].last().cached_tokens, 0);
    EXPECT_TRUE(plain[i].scores().empty());
    EXPECT_EQ(scored[i].scores().size(), goldens_[i].at("ids").size() - 1);
    EXPECT_EQ(scored[i].ids(), plain[i].ids());
  }
  EXPECT_TRUE(was_cached);
}

std::string name_of(const testing::TestParamInfo<Device>& info) {
  return info.param == Device::cpu ? "cpu" : "cuda";
}

INSTANTIATE_TEST_SUITE_P(OnCpu, PromptLogprobs, testing::Values(Device::cpu), name_of);
INSTANTIATE_TEST_SUITE_P(OnCuda, PromptLogprobs, testing::Values(Device::cuda), name_of);

}  // namespace
}  // namespace quire
