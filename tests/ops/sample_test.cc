#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "backends.h"
#include "cases.h"

namespace quire::ops_test {

namespace {

// One row at a time, on every backend.
class SampleTest : public OpTest {
 protected:
  ops::SampledToken run(const std::vector<float>& logits, const ops::SamplerContext& context) {
    HostArray<float, 2> host(int64_t{1}, static_cast<int64_t>(logits.size()));
    host.values = logits;
    const DeviceArray<float, 2> on_device(backend(), host);
    return ops::sample_now(backend(), on_device.view(), settings_, context).value();
  }
  // How often each token comes, over `n` positions.
  std::map<Token, int> histogram(const std::vector<float>& logits, uint64_t n) {
    std::map<Token, int> out;
    for (uint64_t position = 0; position < n; ++position) {
      ++out[run(logits, {.position = position}).token];
    }
    return out;
  }

  SamplingSettings settings_;
};

std::vector<float> log_of(std::vector<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST_P(SampleTest, GreedyTakesTheLargestAndTheLowerOfTies) {
  settings_.temperature = 0;
  const std::vector<float> logits = {1, 5, 3, 5, -2};
  const ops::SampledToken out = run(logits, {});
  EXPECT_EQ(out.verdict, ops::SampleVerdict::ok);
  EXPECT_EQ(out.token, 1);
  double sum = 0;
  for (const float l : logits) sum += std::exp(double{l});
  EXPECT_NEAR(out.logprob, 5 - std::log(sum), 1e-6);
  settings_.temperature = 0.9e-5F;
  EXPECT_EQ(run(logits, {}).token, 1);
}

TEST_P(SampleTest, BadLogitsAreABadRow) {
  settings_.temperature = 0;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const ops::SampledToken out = run({1, bad, 3}, {});
    EXPECT_EQ(out.verdict, ops::SampleVerdict::bad_logits);
    EXPECT_EQ(out.token, -1);
  }
}

TEST_P(SampleTest, BiasAndMask) {
  settings_.temperature = 0;
  settings_.logit_bias = {{2, 10.0F}, {0, 12.0F}};
  const std::vector<float> logits = {-5, 6, 0, 1};
  EXPECT_EQ(run(logits, {}).token, 2);
  const uint64_t only_one_and_three = 0b1010;
  const ops::SampledToken out = run(logits, {.mask = {&only_one_and_three, 1}});
  EXPECT_EQ(out.token, 1);
  // The masked tokens have no share in the distribution.
  EXPECT_NEAR(out.logprob, -std::log1p(std::exp(-5.0)), 1e-6);
  const uint64_t none = ~uint64_t{0} << 4;
  const ops::SampledToken stuck = run(logits, {.mask = {&none, 1}});
  EXPECT_EQ(stuck.verdict, ops::SampleVerdict::dead_end);
  EXPECT_EQ(stuck.token, -1);
}

TEST_P(SampleTest, MaskOfManyWords) {
  settings_.temperature = 1;
  std::vector<uint64_t> mask(3);
  mask[2] = uint64_t{1} << 5;
  std::vector<float> logits(140, 3.0F);
  logits[133] = -40;
  EXPECT_EQ(run(logits, {.mask = mask}).token, 133);
}

TEST_P(SampleTest, RepetitionPenaltyOnPromptAndOutput) {
  settings_.temperature = 0;
  settings_.repetition_penalty = 2.0F;
  const std::vector<Token> prompt = {0, 0, 3};
  const std::vector<Token> generated = {1, 0};
  settings_.top_logprobs = 5;
  const ops::SampledToken out =
      run({4, -1, 1.5F, 2, -3}, {.prompt = prompt, .generated = generated});
  // 4 / 2, -1 * 2, 1.5, 2 / 2, -3: once a token, however often it came.
  std::map<Token, float> found(out.top.begin(), out.top.end());
  EXPECT_EQ(out.token, 0);
  EXPECT_NEAR(found[0] - found[2], 0.5, 1e-6);
  EXPECT_NEAR(found[1] - found[2], -3.5, 1e-6);
  EXPECT_NEAR(found[3] - found[2], -0.5, 1e-6);
  EXPECT_NEAR(found[4] - found[2], -4.5, 1e-6);
}

TEST_P(SampleTest, PresenceAndFrequencyCountTheOutputOnly) {
  settings_.temperature = 0;
  settings_.presence_penalty = 0.5F;
  settings_.frequency_penalty = 0.25F;
  settings_.top_logprobs = 4;
  const std::vector<Token> prompt = {3, 3, 3, 99};
  const std::vector<Token> generated = {1, 2, 1, 1};
  const ops::SampledToken out = run({1, 1, 1, 1}, {.prompt = prompt, .generated = generated});
  std::map<Token, float> found(out.top.begin(), out.top.end());
  EXPECT_NEAR(found[1] - found[0], -1.25, 1e-6);
  EXPECT_NEAR(found[2] - found[0], -0.75, 1e-6);
  EXPECT_NEAR(found[3] - found[0], 0, 1e-6);
}

TEST_P(SampleTest, DrawsFromTheSoftmax) {
  const std::map<Token, int> found = histogram(log_of({0.1, 0.2, 0.3, 0.4}), 4000);
  // Four standard deviations of a binomial count.
  for (int token = 0; token < 4; ++token) {
    const double p = 0.1 * (token + 1);
    EXPECT_NEAR(found.at(token), 4000 * p, 4 * std::sqrt(4000 * p * (1 - p)));
  }
}

TEST_P(SampleTest, TheDrawIsTheInverseOfTheCumulatedProbability) {
  settings_.seed = 77;
  for (uint64_t position = 0; position < 200; ++position) {
    const double u = counter_uniform(77, position);
    const Token expected = u < 0.125 ? 0 : u < 0.625 ? 1 : 2;
    EXPECT_EQ(run(log_of({0.125, 0.5, 0.375}), {.position = position}).token, expected);
  }
}

TEST_P(SampleTest, TemperatureSharpens) {
  settings_.temperature = 0.5F;
  const std::map<Token, int> found = histogram(log_of({0.2, 0.8}), 3000);
  const double p = 0.64 / (0.64 + 0.04);
  EXPECT_NEAR(found.at(1), 3000 * p, 4 * std::sqrt(3000 * p * (1 - p)));
}

TEST_P(SampleTest, TopKKeepsTheLargestAndTheLowerOfTies) {
  settings_.top_k = 2;
  const std::map<Token, int> found = histogram(log_of({0.1, 0.3, 0.3, 0.3}), 300);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(found.count(1), 1U);
  EXPECT_EQ(found.count(2), 1U);
  settings_.top_k = 1;
  EXPECT_EQ(histogram(log_of({0.1, 0.3, 0.3, 0.3}), 20).at(1), 20);
}

TEST_P(SampleTest, TopPKeepsTheShortestPrefixThatReachesIt) {
  const std::vector<float> logits = log_of({0.15, 0.5, 0.05, 0.3});
  settings_.top_p = 0.45F;
  EXPECT_EQ(histogram(logits, 200).size(), 1U);
  settings_.top_p = 0.6F;
  EXPECT_EQ(histogram(logits, 400).size(), 2U);
  settings_.top_p = 0.9F;
  EXPECT_EQ(histogram(logits, 400).size(), 3U);
  settings_.top_p = 1e-6F;  // never empty
  EXPECT_EQ(histogram(logits, 20).at(1), 20);
}

TEST_P(SampleTest, MinPIsRelativeToTheLargest) {
  settings_.min_p = 0.35F;
  const std::map<Token, int> found = histogram(log_of({0.15, 0.5, 0.05, 0.3}), 400);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(found.count(1), 1U);
  EXPECT_EQ(found.count(3), 1U);
}

// Against a full sort in float64, over a vocabulary that takes several rounds of sorting.
TEST_P(SampleTest, TruncationOfALargeVocabulary) {
  Rng rng(51);
  std::vector<float> logits(4352);
  fill(rng, Values::normal, logits);
  for (const float top_p : {0.05F, 0.5F, 0.97F}) {
    for (const int32_t top_k : {0, 700}) {
      settings_.top_p = top_p;
      settings_.top_k = top_k;
      std::vector<int> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      double total = 0;
      for (const float l : logits) total += std::exp(double{l});
      std::vector<double> kept(logits.size());
      double mass = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        if (mass >= double{top_p} * total || (top_k > 0 && i >= static_cast<size_t>(top_k))) break;
        const auto token = static_cast<size_t>(order[i]);
        kept[token] = std::exp(double{logits[token]});
        mass += kept[token];
      }
      for (uint64_t position = 0; position < 50; ++position) {
        const double target = counter_uniform(0, position) * mass;
        const auto token = static_cast<size_t>(run(logits, {.position = position}).token);
        const double before =
            std::accumulate(kept.begin(), kept.begin() + static_cast<int64_t>(token), 0.0);
        EXPECT_GT(kept[token], 0);
        EXPECT_LE(before, target + 1e-5 * mass);
        EXPECT_GE(before + kept[token], target - 1e-5 * mass);
      }
    }
  }
}

TEST_P(SampleTest, LogProbabilitiesAreBeforeTemperatureAndTruncation) {
  settings_.temperature = 0.25F;
  settings_.top_k = 1;
  settings_.top_logprobs = 3;
  const ops::SampledToken out = run(log_of({0.1, 0.2, 0.3, 0.4}), {});
  EXPECT_NEAR(out.logprob, std::log(0.4), 1e-6);
  ASSERT_EQ(out.top.size(), 3U);
  EXPECT_EQ(out.top[0].first, 3);
  EXPECT_EQ(out.top[1].first, 2);
  EXPECT_EQ(out.top[2].first, 1);
  EXPECT_NEAR(out.top[2].second, std::log(0.2), 1e-6);
}

TEST_P(SampleTest, TopListHasOnlyAdmittedTokens) {
  settings_.temperature = 0;
  settings_.top_logprobs = 4;
  const uint64_t two = 0b0101;
  const ops::SampledToken out = run({1, 2, 2, 3}, {.mask = {&two, 1}});
  ASSERT_EQ(out.top.size(), 2U);
  EXPECT_EQ(out.top[0].first, 2);
  EXPECT_EQ(out.top[1].first, 0);
}

// Several rows in one call, as a step makes it.
class SampleRowsTest : public SampleTest {
 protected:
  static constexpr int64_t kVocab = 333;

  void add(const SamplingSettings& settings, const ops::SamplerContext& context) {
    rows_.values.push_back(ops::encode_sampler(settings, context, kVocab, words_));
    rows_.shape = {static_cast<int64_t>(rows_.values.size())};
  }
  std::vector<ops::SampledRow> run_rows(const HostArray<float, 2>& logits,
                                        const HostArray<int32_t, 2>& recent, uint64_t step) {
    HostArray<uint64_t, 1> steps(int64_t{1});
    steps.values = {step};
    HostArray<int32_t, 1> lists(static_cast<int64_t>(storage_.size()));
    lists.values = storage_;
    const DeviceArray<float, 2> on_device(backend(), logits);
    const DeviceArray<SamplerRow, 1> rows(backend(), rows_);
    const DeviceArray<int32_t, 1> words(backend(), lists);
    const DeviceArray<uint64_t, 1> steps_there(backend(), steps);
    const DeviceArray<int32_t, 2> kept(backend(), recent);
    const auto out = DeviceArray<ops::SampledRow, 1>::poisoned(backend(), rows_.shape);
    ops::sample(backend(), {.out = out.view(),
                            .logits = on_device.view(),
                            .rows = rows.constant(),
                            .words = words.constant(),
                            .recent = kept.view(),
                            .step = steps_there.constant()});
    kept_ = kept.download(backend());
    return out.download(backend()).values;
  }

  std::vector<int32_t> storage_ = std::vector<int32_t>(4000);
  ops::SamplerWords words_{storage_};
  HostArray<SamplerRow, 1> rows_;
  HostArray<int32_t, 2> kept_;
};

TEST_P(SampleRowsTest, RowsAreIndependentAndTheirTokensAreKept) {
  Rng rng(52);
  const int64_t n = 9;
  auto logits = filled(rng, Values::normal, HostArray<float, 2>(n, kVocab));
  std::vector<SamplingSettings> settings(static_cast<size_t>(n));
  for (size_t i = 0; i < settings.size(); ++i) {
    settings[i].seed = i;
    settings[i].top_p = i % 2 == 0 ? 0.9F : 1.0F;
    settings[i].top_logprobs = static_cast<int32_t>(i);
    add(settings[i], {.position = i * 3});
  }
  const std::vector<float> alone(logits.values.begin() + 2 * kVocab,
                                 logits.values.begin() + 3 * kVocab);
  logits.view()(4, 100) = NAN;
  HostArray<int32_t, 2> recent(int64_t{4}, n + 2);
  std::ranges::fill(recent.values, 77);
  const std::vector<ops::SampledRow> out = run_rows(logits, recent, 6);
  for (int64_t i = 0; i < n; ++i) {
    const ops::SampledToken token = ops::decode_sampled(out[static_cast<size_t>(i)]);
    EXPECT_EQ(token.verdict, i == 4 ? ops::SampleVerdict::bad_logits : ops::SampleVerdict::ok);
    EXPECT_EQ(kept_.view()(2, i), token.token);
    recent.view()(2, i) = token.token;
  }
  EXPECT_EQ(kept_.values, recent.values) << "a token was kept in another place";
  settings_ = settings[2];
  const ops::SampledToken expected = run(alone, {.position = 6});
  const ops::SampledToken found = ops::decode_sampled(out[2]);
  EXPECT_EQ(found.token, expected.token);
  EXPECT_EQ(found.logprob, expected.logprob);
  EXPECT_EQ(found.top, expected.top);
}

TEST_P(SampleRowsTest, AGivenTokenIsScoredAndTheOthersAreSampled) {
  Rng rng(54);
  const auto logits = filled(rng, Values::normal, HostArray<float, 2>(int64_t{3}, kVocab));
  const std::vector<float> first(logits.values.begin(), logits.values.begin() + kVocab);
  settings_ = {.temperature = 0, .top_logprobs = 20};
  const ops::SampledToken sampled = run(first, {});
  const auto& [token, logprob] = sampled.top[13];
  rows_.values.push_back(ops::encode_score(token, 20));
  rows_.values.push_back(ops::encode_score(sampled.token, 0));
  add(settings_, {});
  HostArray<float, 2> same = logits;
  std::copy(first.begin(), first.end(), same.values.begin() + kVocab);
  HostArray<int32_t, 2> recent(int64_t{1}, int64_t{3});
  const std::vector<ops::SampledRow> out = run_rows(same, recent, 5);
  const ops::SampledToken scored = ops::decode_sampled(out[0]);
  EXPECT_EQ(scored.verdict, ops::SampleVerdict::ok);
  EXPECT_EQ(scored.token, token);
  EXPECT_EQ(scored.logprob, logprob);
  EXPECT_EQ(scored.top, sampled.top);
  EXPECT_EQ(ops::decode_sampled(out[1]).logprob, sampled.logprob);
  EXPECT_TRUE(ops::decode_sampled(out[1]).top.empty());
  EXPECT_EQ(kept_.view()(0, 0), token);
  const std::vector<float> third(logits.values.begin() + 2 * kVocab, logits.values.end());
  EXPECT_EQ(ops::decode_sampled(out[2]).token, run(third, {}).token);
}

// A penalty counts a token that is not on the host yet.
TEST_P(SampleRowsTest, GeneratedTokensMayBeReferences) {
  Rng rng(53);
  const auto logits = filled(rng, Values::normal, HostArray<float, 2>(int64_t{1}, kVocab));
  settings_ = {.temperature = 0, .frequency_penalty = 2, .top_logprobs = 5};
  SamplingSettings plain = settings_;
  plain.frequency_penalty = 0;
  HostArray<int32_t, 2> recent(int64_t{4}, int64_t{3});
  const Token best =
      static_cast<Token>(std::ranges::max_element(logits.values) - logits.values.begin());
  recent.view()(1, 2) = best;
  const std::vector<int32_t> by_reference = {recent_reference(3 * 1 + 2), 5};
  const std::vector<int32_t> by_token = {best, 5};
  add(settings_, {.generated = by_reference});
  const ops::SampledToken found = ops::decode_sampled(run_rows(logits, recent, 2)[0]);
  const ops::SampledToken expected = run(logits.values, {.generated = by_token});
  EXPECT_NE(found.token, best);
  EXPECT_EQ(found.token, expected.token);
  EXPECT_EQ(found.logprob, expected.logprob);
  EXPECT_EQ(found.top, expected.top);
}

QUIRE_ON_EVERY_BACKEND(SampleRowsTest);
QUIRE_ON_EVERY_BACKEND(SampleTest);

}  // namespace

}  // namespace quire::ops_test
