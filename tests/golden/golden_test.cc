// Golden logits: tiny random checkpoints through the whole forward pass, on the CPU and, in a build
// that has it, on a CUDA device, against what transformers gives in float32 for the same weights
// (make_goldens.py).
//
// Tolerances are derived in docs/numerics.md, "Golden logits"; each test prints what it used of
// its.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "format/checkpoint.h"
#include "golden_backend.h"
#include "model/model.h"
#include "model/single_sequence.h"
#include "weights/loader.h"

namespace quire {
namespace {

// Relative error of the logits as a whole (norm of the difference over norm of the logits).
// BF16: 24 roundings a layer, each uniform within half a unit of 2^-8, so
// sqrt(24 * layers) * 2^-9 / sqrt(3), times 2 for what softmax and routing amplify.
double bf16_bound(int64_t n_layers) {
  return 2 * std::sqrt(24.0 * static_cast<double>(n_layers)) * 0x1p-9 / std::sqrt(3.0);
}
// FP8 pages: latents and keys carry 2^-4 / sqrt(3) on top, which reaches the residual stream
// through attention alone.
double fp8_kv_bound(int64_t n_layers) {
  return bf16_bound(n_layers) + std::sqrt(static_cast<double>(n_layers)) * 0x1p-4 / std::sqrt(3.0);
}
// The worst single logit, in units of the bound times the standard deviation of the logits: 6
// standard errors cover 10^4 normal draws with room.
constexpr double kWorstOverBound = 6.0;

struct Golden {
  std::vector<Token> ids;
  std::vector<float> logits;  // [ids, vocab]
};

std::string folder(const std::string& name) {
  return std::string(QUIRE_SOURCE_DIR) + "/tests/golden/" + name;
}

template <class T>
std::vector<T> read_values(const MappedFile& file, const TensorEntry& tensor) {
  std::vector<T> out(static_cast<size_t>(tensor.bytes) / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = load_le<T>(file.bytes(), static_cast<size_t>(tensor.offset) + i * sizeof(T));
  }
  return out;
}

Golden read_golden(const std::string& name) {
  const MappedFile file = MappedFile::open(folder(name) + "/golden.safetensors").value();
  const SafetensorsIndex index = parse_safetensors(file.bytes(), file.path()).value();
  Golden golden;
  for (const TensorEntry& tensor : index.tensors) {
    if (tensor.name == "ids") golden.ids = read_values<Token>(file, tensor);
    if (tensor.name == "logits") golden.logits = read_values<float>(file, tensor);
  }
  return golden;
}

struct Distance {
  bool all_finite = true;
  double relative = 0;   // norm of the difference over norm of the golden
  double deviation = 0;  // of the golden
  double worst = 0;      // largest difference ...
  size_t worst_at = 0;   // ... and where
};

Distance distance_of(const std::vector<float>& found, const std::vector<float>& golden) {
  Distance out;
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    out.all_finite = out.all_finite && std::isfinite(found[i]);
    const double difference = static_cast<double>(found[i]) - golden[i];
    error += difference * difference;
    norm += static_cast<double>(golden[i]) * golden[i];
    if (std::fabs(difference) > out.worst) {
      out.worst = std::fabs(difference);
      out.worst_at = i;
    }
  }
  out.relative = std::sqrt(error / norm);
  out.deviation = std::sqrt(norm / static_cast<double>(found.size()));
  return out;
}

struct Case {
  const char* name;     // folder of config.json and golden.safetensors
  const char* weights;  // folder of the weights
  Device device = Device::cpu;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class GoldenLogits : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    config_ = read_model_config(folder(GetParam().name)).value();
    backend_ = make_backend(GetParam().device);
    if (backend_ == nullptr) GTEST_SKIP() << "no such device here";
    weights_ = load_weights({.checkpoint = Checkpoint::open(folder(GetParam().weights)).value(),
                             .shape = config_.shape,
                             .source = config_.weights},
                            *backend_, nullptr)
                   .value();
    golden_ = read_golden(GetParam().name);
    ASSERT_EQ(golden_.logits.size(),
              golden_.ids.size() * static_cast<size_t>(config_.shape.vocab_size));
    ASSERT_GT(golden_.ids.size(), static_cast<size_t>(kPageTokens));
  }

  // All logits, fed in chunks.
  std::vector<float> run(int64_t chunk, const ModelOptions& options = {}) {
    const auto n = static_cast<int64_t>(golden_.ids.size());
    const auto model = make_model(config_, *weights_, *backend_,
                                  {.tokens_max = chunk, .logits_max = chunk}, options)
                           .value();
    SingleSequence sequence = SingleSequence::make(*model, *backend_, n, chunk).value();
    std::vector<float> out;
    for (int64_t at = 0; at < n; at += chunk) {
      const auto size = static_cast<size_t>(std::min(chunk, n - at));
      const auto part = std::span(golden_.ids).subspan(static_cast<size_t>(at), size);
      const std::vector<float> logits = sequence.feed(part, static_cast<int64_t>(size));
      out.insert(out.end(), logits.begin(), logits.end());
    }
    return out;
  }

  void expect_near_golden(const std::vector<float>& found, double bound) {
    ASSERT_EQ(found.size(), golden_.logits.size());
    const Distance distance = distance_of(found, golden_.logits);
    ASSERT_TRUE(distance.all_finite);
    const double worst_bound = kWorstOverBound * bound * distance.deviation;
    const auto vocab = static_cast<size_t>(config_.shape.vocab_size);
    std::printf("%s: relative error %.5f of %.5f, worst logit off by %.4f of %.4f\n",
                GetParam().name, distance.relative, bound, distance.worst, worst_bound);
    EXPECT_LE(distance.relative, bound);
    EXPECT_LE(distance.worst, worst_bound)
        << "token " << distance.worst_at / vocab << ", logit " << distance.worst_at % vocab
        << ": found " << found[distance.worst_at] << ", golden "
        << golden_.logits[distance.worst_at];
  }

  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ModelWeights> weights_;
  Golden golden_;
};

TEST_P(GoldenLogits, Bf16Cache) {
  expect_near_golden(run(static_cast<int64_t>(golden_.ids.size())),
                     bf16_bound(config_.shape.n_layers));
}

TEST_P(GoldenLogits, Fp8Cache) {
  const auto n = static_cast<int64_t>(golden_.ids.size());
  const std::vector<float> fp8 = run(n, {.kv_format = KvFormat::fp8_e4m3_584});
  expect_near_golden(fp8, fp8_kv_bound(config_.shape.n_layers));
  EXPECT_NE(fp8, run(n)) << "the cache's format made no difference";
}

// Inputs of FP8 weights rounded to e4m3 as well, as DeepSeek's checkpoints were trained for. Each
// of the 7 products of a layer carries 2^-4 / sqrt(3) of its input on top. Other weights are not
// affected.
TEST_P(GoldenLogits, Fp8Activations) {
  const auto n = static_cast<int64_t>(golden_.ids.size());
  const std::vector<float> rounded = run(n, {.activation = Activation::fp8_group128});
  if (config_.weights.scheme != WeightScheme::fp8_block128) {
    EXPECT_EQ(rounded, run(n));
    return;
  }
  // No bound on a single logit: this much noise may change an expert of a token.
  const auto products = 7 * static_cast<double>(config_.shape.n_layers);
  const double bound =
      bf16_bound(config_.shape.n_layers) + std::sqrt(products) * 0x1p-4 / std::sqrt(3.0);
  const double relative = distance_of(rounded, golden_.logits).relative;
  std::printf("%s: relative error %.4f of %.4f\n", GetParam().name, relative, bound);
  EXPECT_LE(relative, bound);
  EXPECT_NE(rounded, run(n)) << "the format of activations made no difference";
}

// The same tokens in other chunks give the same bits, in both formats of the cache.
TEST_P(GoldenLogits, ChunksDoNotChangeABit) {
  if (GetParam().device != Device::cpu) GTEST_SKIP() << "promised by the CPU backend only";
  const auto n = static_cast<int64_t>(golden_.ids.size());
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    const std::vector<float> whole = run(n, {.kv_format = format});
    EXPECT_EQ(whole, run(1, {.kv_format = format})) << name(format);
    EXPECT_EQ(whole, run(7, {.kv_format = format})) << name(format);
    EXPECT_EQ(whole, run(64, {.kv_format = format})) << name(format);
  }
}

// The bounds can fail: a model that differs in one detail is past them.
TEST_P(GoldenLogits, OneWrongDetailIsPastTheBound) {
  const auto n = static_cast<int64_t>(golden_.ids.size());
  const ModelConfig right = config_;
  const auto expect_far = [&](const char* what) {
    const double relative = distance_of(run(n), golden_.logits).relative;
    std::printf("%s, %s: relative error %.4f\n", GetParam().name, what, relative);
    EXPECT_GT(relative, bf16_bound(config_.shape.n_layers)) << what;
    config_ = right;
  };
  config_.rope.theta *= 1.5;
  expect_far("rope theta 1.5 times too large");
  config_.routed_scaling *= 0.9;
  expect_far("routed scaling 10 % too small");
  config_.normalise_top_k = false;
  expect_far("weights of experts not normalised");
  if (config_.rope.yarn) {
    config_.rope.yarn->mscale_all_dim = 0;
    config_.rope.yarn->attention_factor = 1;
    expect_far("softmax scale without YaRN's factor");
    config_.rope.yarn->original_max_positions *= 16;
    expect_far("YaRN's ramp at other pairs");
  }
  if (config_.norm_eps > 5e-6) {
    config_.norm_eps = 1e-6;
    expect_far("epsilon 1e-6 instead of 1e-5");
  }
}

std::vector<Case> cases_on(Device device) {
  return {{"bf16", "bf16", device},
          {"rope_default", "bf16", device},
          {"eps_1e-5", "bf16", device},
          {"q_direct", "q_direct", device},
          {"fp8_block128", "fp8_block128", device},
          {"int4_group32", "int4_group32", device},
          {"int4_group128", "int4_group128", device}};
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST_P(GoldenLogits, LimitsPastTheModelAreRefused) {
  const auto model = make_model(
      config_, *weights_, *backend_,
      {.tokens_max = 1, .logits_max = 1, .positions_max = config_.positions_max + 1}, {});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::invalid_argument);
  config_.scoring = "softmax";
  const auto other =
      make_model(config_, *weights_, *backend_, {.tokens_max = 1, .logits_max = 1}, {});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenLogits, testing::ValuesIn(cases_on(Device::cpu)),
                         name_of);
#ifdef QUIRE_CUDA
INSTANTIATE_TEST_SUITE_P(CheckpointsOnCuda, GoldenLogits, testing::ValuesIn(cases_on(Device::cuda)),
                         name_of);
#endif

}  // namespace
}  // namespace quire
