#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends.h"
#include "cases.h"
#include "compare.h"

namespace quire::ops_test {

namespace {

using MoeTest = OpTest;

struct Routed {
  HostArray<int32_t, 2> experts;
  HostArray<float, 2> weights;
};

Routed route(Backend& backend, const HostArray<float, 2>& scores, const HostArray<float, 1>& bias,
             int64_t top_k, ops::RouteWeights mode = ops::RouteWeights::normalised) {
  const DeviceArray<float, 2> scores_on(backend, scores);
  const DeviceArray<float, 1> bias_on(backend, bias);
  const auto experts = DeviceArray<int32_t, 2>::poisoned(backend, {scores[0], top_k});
  const auto weights = DeviceArray<float, 2>::poisoned(backend, {scores[0], top_k});
  ops::moe_route(backend, {.experts = experts.view(),
                           .weights = weights.view(),
                           .scores = scores_on.constant(),
                           .bias = bias_on.constant(),
                           .scaling = 2.5F,
                           .mode = mode});
  return {experts.download(backend), weights.download(backend)};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_P(MoeTest, RoutesAsTheReference) {
  Rng rng(41);
  struct Shape {
    int64_t n_tokens, n_experts, top_k;
  };
  for (const Shape& s : {Shape{0, 16, 4}, Shape{1, 16, 4}, Shape{33, 384, 8}, Shape{5, 7, 7},
                         Shape{64, 16, 1}, Shape{2, 130, 6}, Shape{3, 2048, 32}}) {
    for (const auto mode : {ops::RouteWeights::normalised, ops::RouteWeights::as_they_are}) {
      SCOPED_TRACE(s.n_experts);
      const auto scores = filled(rng, Values::normal, HostArray<float, 2>(s.n_tokens, s.n_experts));
      HostArray<float, 1> bias(s.n_experts);
      for (float& b : bias.values) b = rng.next_float() * 0.2F;
      const Routed found = route(backend(), scores, bias, s.top_k, mode);
      for (int64_t t = 0; t < s.n_tokens; ++t) {
        std::vector<double> p;
        std::vector<double> key;
        for (int64_t e = 0; e < s.n_experts; ++e) {
          p.push_back(sigmoid(scores.view()(t, e)));
          key.push_back(p.back() + bias.view()(e));
        }
        std::vector<size_t> order(p.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] > key[b]; });
        double sum = 1e-20;
        for (int64_t k = 0; k < s.top_k; ++k) sum += p[order[static_cast<size_t>(k)]];
        for (int64_t k = 0; k < s.top_k; ++k) {
          const auto expert = static_cast<size_t>(found.experts.view()(t, k));
          ASSERT_LT(expert, p.size());
          // Keys closer than float32 can tell apart may change places.
          EXPECT_NEAR(key[expert], key[order[static_cast<size_t>(k)]], 8 * 0x1p-24);
          const double divisor = mode == ops::RouteWeights::normalised ? sum : 1;
          const double weight = 2.5 * p[expert] / divisor;
          EXPECT_NEAR(found.weights.view()(t, k), weight, 24 * 0x1p-24 * weight);
        }
      }
    }
  }
}

TEST_P(MoeTest, TiesGoToTheLowerExpert) {
  HostArray<float, 2> scores(int64_t{1}, int64_t{8});
  scores.values = {1, 2, 2, 1, 2, 1, 0, 2};
  const HostArray<float, 1> bias(int64_t{8});
  const Routed found = route(backend(), scores, bias, 5);
  EXPECT_EQ(found.experts.values, (std::vector<int32_t>{1, 2, 4, 7, 0}));
}

// However a backend shares out the experts.
TEST_P(MoeTest, TiesOfManyExpertsToo) {
  HostArray<float, 2> scores(int64_t{1}, int64_t{384});
  for (const size_t e : {size_t{383}, size_t{130}, size_t{127}, size_t{128}}) scores.values[e] = 1;
  const Routed found = route(backend(), scores, HostArray<float, 1>(int64_t{384}), 8);
  EXPECT_EQ(found.experts.values, (std::vector<int32_t>{127, 128, 130, 383, 0, 1, 2, 3}));
}

TEST_P(MoeTest, BiasChoosesButDoesNotWeigh) {
  HostArray<float, 2> scores(int64_t{1}, int64_t{4});
  scores.values = {0, 0, 0, 5};
  HostArray<float, 1> bias(int64_t{4});
  bias.values = {0, 3, 2, 0};
  const Routed found = route(backend(), scores, bias, 2);
  EXPECT_EQ(found.experts.values, (std::vector<int32_t>{1, 2}));
  EXPECT_FLOAT_EQ(found.weights.values[0], 1.25F);
  EXPECT_FLOAT_EQ(found.weights.values[1], 1.25F);
}

TEST_P(MoeTest, NaNScoresStayInTheirRow) {
  HostArray<float, 2> scores(int64_t{2}, int64_t{4});
  scores.values = {0, NAN, 1, 2, 0, 3, 1, 2};
  const Routed found = route(backend(), scores, HostArray<float, 1>(int64_t{4}), 2);
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_GE(found.experts.values[k], 0);
    EXPECT_LT(found.experts.values[k], 4);
    EXPECT_TRUE(std::isnan(found.weights.values[k]));
    EXPECT_TRUE(std::isfinite(found.weights.values[2 + k]));
  }
  EXPECT_EQ(found.experts.values[2], 1);
  EXPECT_EQ(found.experts.values[3], 3);
}

// Which experts each token chose, and what they weigh.
struct Choices {
  HostArray<int32_t, 2> experts;
  HostArray<float, 2> weights;
};

// Distinct experts, some of them never chosen.
Choices choose(Rng& rng, const MoeCase& c) {
  Choices out{HostArray<int32_t, 2>(c.n_tokens, c.top_k), HostArray<float, 2>(c.n_tokens, c.top_k)};
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    const auto first = static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(c.n_experts)));
    for (int64_t k = 0; k < c.top_k; ++k) {
      out.experts.view()(t, k) = static_cast<int32_t>((first + k) % c.n_experts);
      out.weights.view()(t, k) = rng.next_float();
    }
  }
  return out;
}

HostArray<Bf16, 2> run(Backend& backend, const MoeCase& c, const ops::ExpertBank& bank,
                       const HostArray<Bf16, 2>& x, const Choices& choices) {
  const DeviceArray<Bf16, 2> x_on(backend, x);
  const DeviceArray<int32_t, 2> experts_on(backend, choices.experts);
  const DeviceArray<float, 2> weights_on(backend, choices.weights);
  const auto out = DeviceArray<Bf16, 2>::poisoned(backend, x.shape);
  ops::moe_experts(backend, {.out = out.view(),
                             .x = x_on.constant(),
                             .experts = experts_on.constant(),
                             .weights = weights_on.constant(),
                             .bank = &bank,
                             .activation = c.activation});
  return out.download(backend);
}

Expected expected_of(const MoeCase& c, const Experts& experts, const HostArray<Bf16, 2>& x,
                     const Choices& choices) {
  return reference(ops::MoeExperts{.out = {},
                                   .x = x.view(),
                                   .experts = choices.experts.view(),
                                   .weights = choices.weights.view(),
                                   .bank = nullptr,
                                   .activation = c.activation},
                   experts.host());
}

TEST_P(MoeTest, ExpertsMatchTheReference) {
  Rng rng(42);
  for (const MoeCase& c : moe_cases()) {
    SCOPED_TRACE(describe(c));
    Experts experts(rng, c);
    const auto bank = experts.pack(backend());
    const auto x = filled(rng, Values::normal, HostArray<Bf16, 2>(c.n_tokens, c.hidden));
    const Choices choices = choose(rng, c);
    const HostArray<Bf16, 2> found = run(backend(), c, *bank, x, choices);
    EXPECT_TRUE(matches(found, expected_of(c, experts, x, choices)));
    EXPECT_TRUE(same_bits(run(backend(), c, *bank, x, choices), found)) << "run again";
  }
}

TEST_P(MoeTest, OneExpertMayTakeEveryToken) {
  Rng rng(43);
  struct Shape {
    int64_t n_tokens, top_k;
  };
  // One that a token chooses more than once counts as often.
  for (const Shape& s :
       {Shape{4, 1}, Shape{4, 3}, Shape{8, 1}, Shape{5, 3}, Shape{40, 1}, Shape{200, 1}}) {
    const MoeCase c{s.n_tokens, 256, 128, 9, s.top_k, WeightFormat::int4_group, 32};
    SCOPED_TRACE(describe(c));
    Experts experts(rng, c);
    const auto bank = experts.pack(backend());
    const auto x = filled(rng, Values::normal, HostArray<Bf16, 2>(c.n_tokens, c.hidden));
    Choices choices = choose(rng, c);
    std::fill(choices.experts.values.begin(), choices.experts.values.end(), 8);
    EXPECT_TRUE(matches(run(backend(), c, *bank, x, choices), expected_of(c, experts, x, choices)));
  }
}

QUIRE_ON_EVERY_BACKEND(MoeTest);

}  // namespace

}  // namespace quire::ops_test
