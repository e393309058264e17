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

constexpr float kScaling = 2.5F;

struct Inputs {
  HostArray<Bf16, 2> x;
  HostArray<float, 2> scores;
  HostArray<float, 1> bias;
  ops::RouteWeights mode = ops::RouteWeights::normalised;
};

struct Found {
  HostArray<Bf16, 2> out;
  HostArray<int32_t, 2> experts;
  HostArray<float, 2> weights;
};

Found run(Backend& backend, const MoeCase& c, const ops::ExpertBank& bank, const Inputs& in) {
  const DeviceArray<Bf16, 2> x(backend, in.x);
  const DeviceArray<float, 2> scores(backend, in.scores);
  const DeviceArray<float, 1> bias(backend, in.bias);
  const auto out = DeviceArray<Bf16, 2>::poisoned(backend, in.x.shape);
  const auto experts = DeviceArray<int32_t, 2>::poisoned(backend, {in.x[0], c.top_k});
  const auto weights = DeviceArray<float, 2>::poisoned(backend, {in.x[0], c.top_k});
  ops::moe_experts(backend, {.out = out.view(),
                             .experts = experts.view(),
                             .weights = weights.view(),
                             .x = x.constant(),
                             .scores = scores.constant(),
                             .bias = bias.constant(),
                             .scaling = kScaling,
                             .mode = in.mode,
                             .bank = &bank,
                             .activation = c.activation});
  return {out.download(backend), experts.download(backend), weights.download(backend)};
}

// Of small experts, whose outputs do not matter.
MoeCase routing_case(int64_t n_tokens, int64_t n_experts, int64_t top_k) {
  return {n_tokens, 64, 32, n_experts, top_k, WeightFormat::bf16};
}

Found route(Backend& backend, const HostArray<float, 2>& scores, const HostArray<float, 1>& bias,
            int64_t top_k, ops::RouteWeights mode = ops::RouteWeights::normalised) {
  Rng rng(40);
  const MoeCase c = routing_case(scores[0], scores[1], top_k);
  Experts experts(rng, c);
  const auto x = filled(rng, Values::normal, HostArray<Bf16, 2>(c.n_tokens, c.hidden));
  return run(backend, c, *experts.pack(backend), {x, scores, bias, mode});
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void expect_right_choices(const Found& found, const HostArray<float, 2>& scores,
                          const HostArray<float, 1>& bias, ops::RouteWeights mode) {
  for (int64_t t = 0; t < scores[0]; ++t) {
    std::vector<double> p;
    std::vector<double> key;
    for (int64_t e = 0; e < scores[1]; ++e) {
      p.push_back(sigmoid(scores.view()(t, e)));
      key.push_back(p.back() + bias.view()(e));
    }
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] > key[b]; });
    const int64_t top_k = found.experts[1];
    double sum = 1e-20;
    for (int64_t k = 0; k < top_k; ++k) sum += p[order[static_cast<size_t>(k)]];
    for (int64_t k = 0; k < top_k; ++k) {
      const auto expert = static_cast<size_t>(found.experts.view()(t, k));
      ASSERT_LT(expert, p.size());
      // Keys closer than float32 can tell apart may change places.
      EXPECT_NEAR(key[expert], key[order[static_cast<size_t>(k)]], 8 * 0x1p-24);
      const double divisor = mode == ops::RouteWeights::normalised ? sum : 1;
      const double weight = double{kScaling} * p[expert] / divisor;
      EXPECT_NEAR(found.weights.view()(t, k), weight, 24 * 0x1p-24 * weight);
    }
  }
}

TEST_P(MoeTest, RoutesAsTheReference) {
  Rng rng(41);
  struct Shape {
    int64_t n_tokens, n_experts, top_k;
  };
  for (const Shape& s :
       {Shape{0, 16, 4}, Shape{1, 16, 4}, Shape{33, 384, 8}, Shape{5, 7, 7}, Shape{64, 16, 1},
        Shape{2, 130, 6}, Shape{3, 1000, 32}, Shape{1, 384, 8}, Shape{8, 384, 8}, Shape{2, 384, 32},
        Shape{8, 250, 3}, Shape{1, 1000, 8}, Shape{8, 1000, 8}, Shape{200, 48, 4}}) {
    for (const auto mode : {ops::RouteWeights::normalised, ops::RouteWeights::as_they_are}) {
      SCOPED_TRACE(describe(routing_case(s.n_tokens, s.n_experts, s.top_k)));
      const auto scores = filled(rng, Values::normal, HostArray<float, 2>(s.n_tokens, s.n_experts));
      HostArray<float, 1> bias(s.n_experts);
      for (float& b : bias.values) b = rng.next_float() * 0.2F;
      expect_right_choices(route(backend(), scores, bias, s.top_k, mode), scores, bias, mode);
    }
  }
}

// Whatever kernels run: a few tokens are not routed as many are.
TEST_P(MoeTest, RoutesARowTheSameInAnyBatch) {
  Rng rng(44);
  for (const int64_t n_experts : {384, 250}) {
    const auto scores = filled(rng, Values::normal, HostArray<float, 2>(int64_t{40}, n_experts));
    const auto bias = filled(rng, Values::normal, HostArray<float, 1>(n_experts));
    const Found all = route(backend(), scores, bias, 8);
    for (const int64_t n : {1, 2, 5, 8}) {
      for (const int64_t begin : {int64_t{0}, 40 - n}) {
        const Found some = route(backend(), rows_of(scores, begin, n), bias, 8);
        EXPECT_EQ(some.experts.values, rows_of(all.experts, begin, n).values) << n;
        EXPECT_EQ(some.weights.values, rows_of(all.weights, begin, n).values) << n;
      }
    }
  }
}

TEST_P(MoeTest, TiesGoToTheLowerExpert) {
  HostArray<float, 2> scores(int64_t{1}, int64_t{8});
  scores.values = {1, 2, 2, 1, 2, 1, 0, 2};
  const HostArray<float, 1> bias(int64_t{8});
  const Found found = route(backend(), scores, bias, 5);
  EXPECT_EQ(found.experts.values, (std::vector<int32_t>{1, 2, 4, 7, 0}));
}

// However a backend shares out the experts, and for few tokens and more.
TEST_P(MoeTest, TiesOfManyExpertsToo) {
  for (const int64_t n_tokens : {1, 20}) {
    HostArray<float, 2> scores(n_tokens, int64_t{384});
    for (const int64_t e : {383, 130, 127, 128, 191, 192}) {
      scores.view()(n_tokens - 1, e) = 1;
    }
    const Found found = route(backend(), scores, HostArray<float, 1>(int64_t{384}), 8);
    EXPECT_EQ(rows_of(found.experts, n_tokens - 1, 1).values,
              (std::vector<int32_t>{127, 128, 130, 191, 192, 383, 0, 1}));
  }
}

TEST_P(MoeTest, BiasChoosesButDoesNotWeigh) {
  HostArray<float, 2> scores(int64_t{1}, int64_t{4});
  scores.values = {0, 0, 0, 5};
  HostArray<float, 1> bias(int64_t{4});
  bias.values = {0, 3, 2, 0};
  const Found found = route(backend(), scores, bias, 2);
  EXPECT_EQ(found.experts.values, (std::vector<int32_t>{1, 2}));
  EXPECT_FLOAT_EQ(found.weights.values[0], 1.25F);
  EXPECT_FLOAT_EQ(found.weights.values[1], 1.25F);
}

TEST_P(MoeTest, NaNScoresStayInTheirRow) {
  for (const int64_t n_tokens : {2, 20}) {
    HostArray<float, 2> scores(n_tokens, int64_t{4});
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t e = 0; e < 4; ++e) scores.view()(t, e) = static_cast<float>(e * (4 - e));
    }
    scores.view()(0, 1) = NAN;
    const Found found = route(backend(), scores, HostArray<float, 1>(int64_t{4}), 2);
    for (int64_t k = 0; k < 2; ++k) {
      EXPECT_GE(found.experts.view()(0, k), 0);
      EXPECT_LT(found.experts.view()(0, k), 4);
      EXPECT_TRUE(std::isnan(found.weights.view()(0, k)));
    }
    for (int64_t t = 1; t < n_tokens; ++t) {
      EXPECT_EQ(found.experts.view()(t, 0), 2);
      EXPECT_TRUE(std::isfinite(found.weights.view()(t, 0)));
      for (const Bf16 y : rows_of(found.out, t, 1).values) EXPECT_TRUE(std::isfinite(to_float(y)));
    }
  }
}

// Scores by which each token chooses experts that follow one another, some of them never chosen.
Inputs inputs_of(Rng& rng, const MoeCase& c) {
  Inputs in{.x = filled(rng, Values::normal, HostArray<Bf16, 2>(c.n_tokens, c.hidden)),
            .scores = HostArray<float, 2>(c.n_tokens, c.n_experts),
            .bias = HostArray<float, 1>(c.n_experts)};
  for (float& score : in.scores.values) score = rng.next_float() - 3;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    const auto first = static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(c.n_experts)));
    for (int64_t k = 0; k < c.top_k; ++k) in.scores.view()(t, (first + k) % c.n_experts) += 4;
  }
  return in;
}

// By what was chosen.
Expected expected_of(const MoeCase& c, const Experts& experts, const Inputs& in, Found& found) {
  return reference(ops::MoeExperts{.out = {},
                                   .experts = found.experts.view(),
                                   .weights = found.weights.view(),
                                   .x = in.x.view(),
                                   .scores = in.scores.view(),
                                   .bias = in.bias.view(),
                                   .scaling = kScaling,
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
    const Inputs in = inputs_of(rng, c);
    Found found = run(backend(), c, *bank, in);
    expect_right_choices(found, in.scores, in.bias, in.mode);
    EXPECT_TRUE(matches(found.out, expected_of(c, experts, in, found)));
    EXPECT_TRUE(same_bits(run(backend(), c, *bank, in).out, found.out)) << "run again";
  }
}

TEST_P(MoeTest, OneExpertMayTakeEveryToken) {
  Rng rng(43);
  for (const int64_t n_tokens : {4, 8, 40, 200}) {
    const MoeCase c{n_tokens, 256, 128, 9, 1, WeightFormat::int4_group, 32};
    SCOPED_TRACE(describe(c));
    Experts experts(rng, c);
    const auto bank = experts.pack(backend());
    Inputs in = inputs_of(rng, c);
    in.bias.view()(8) = 2;
    Found found = run(backend(), c, *bank, in);
    EXPECT_TRUE(std::ranges::all_of(found.experts.values, [](int32_t e) { return e == 8; }));
    EXPECT_TRUE(matches(found.out, expected_of(c, experts, in, found)));
  }
}

QUIRE_ON_EVERY_BACKEND(MoeTest);

}  // namespace

}  // namespace quire::ops_test
