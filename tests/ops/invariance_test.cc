// Batch invariance: a row's bits are the same alone, in any batch, in any chunking, and on any
// number of threads. Checked on backends that promise it.
#include "backends.h"
#include "cases.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "reference.h"

namespace quire::ops_test {

namespace {

class InvarianceTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (GetParam().family.empty()) GTEST_SKIP() << "no promise of equal bits";
    for (const BackendFactory& factory : backends()) {
      if (factory.family == GetParam().family) {
        first_ = factory.make();
        break;
      }
    }
  }
  // The first backend of the family: what this one must equal.
  Backend& first() { return *first_; }

 private:
  std::unique_ptr<Backend> first_;
};

// Batch sizes around every blocking that a kernel may use.
constexpr int64_t kBatches[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64, 65};

HostArray<float, 2> linear_of(Backend& backend, const HostArray<Bf16, 2>& x,
                              const HostWeight& weight, Activation activation) {
  const DeviceWeight weight_on = on(backend, weight);
  const DeviceArray<Bf16, 2> x_on(backend, x);
  const auto out = DeviceArray<float, 2>::poisoned(backend, {x[0], weight.matrix.n_out});
  ops::linear(backend, {.out = {},
                        .out_f32 = out.view(),
                        .x = x_on.constant(),
                        .weight = weight_on.matrix,
                        .activation = activation});
  return out.download(backend);
}

TEST_P(InvarianceTest, Linear) {
  Rng rng(61);
  for (const LinearCase& c :
       {LinearCase{130, 272, 39, WeightFormat::bf16},
        LinearCase{130, 300, 39, WeightFormat::fp8_block128},
        LinearCase{130, 300, 39, WeightFormat::fp8_block128, 0, Activation::fp8_group128},
        LinearCase{130, 256, 39, WeightFormat::int4_group, 32},
        LinearCase{130, 2048, 200, WeightFormat::bf16},
        LinearCase{130, 2048, 200, WeightFormat::fp8_block128},
        LinearCase{130, 2048, 200, WeightFormat::fp8_block128, 0, Activation::fp8_group128},
        LinearCase{130, 2048, 200, WeightFormat::int4_group, 32}}) {
    SCOPED_TRACE(describe(c));
    const auto weight = make_weight(rng, c);
    const auto x = filled(rng, c.values, HostArray<Bf16, 2>(c.n_tokens, c.n_in));
    const HostArray<float, 2> all = linear_of(first(), x, *weight, c.activation);
    EXPECT_TRUE(same_bits(linear_of(backend(), x, *weight, c.activation), all));
    for (const int64_t n : kBatches) {
      const int64_t begin = c.n_tokens - n;
      const auto part = linear_of(backend(), rows_of(x, begin, n), *weight, c.activation);
      EXPECT_TRUE(same_bits(part, rows_of(all, begin, n))) << n;
    }
  }
}

TEST_P(InvarianceTest, Attention) {
  Rng rng(62);
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    const CacheCase c{format, 512, 64, 8, {{0, 200}, {2100, 2103}, {1023, 1025}, {60, 70}}};
    Cache cache(rng, c);
    append_reference(&cache);
    const int64_t n_tokens = cache.row[0];
    const auto q_latent =
        filled(rng, c.values, HostArray<Bf16, 3>(n_tokens, int64_t{8}, int64_t{512}));
    const auto q_rope =
        filled(rng, c.values, HostArray<Bf16, 3>(n_tokens, int64_t{8}, int64_t{64}));
    const auto run = [&](Backend& backend, int64_t begin, int64_t n) {
      const DeviceArray<Bf16, 3> latent_on(backend, rows_of(q_latent, begin, n));
      const DeviceArray<Bf16, 3> rope_on(backend, rows_of(q_rope, begin, n));
      const DeviceArray<int32_t, 1> row_on(backend, rows_of(cache.row, begin, n));
      const DeviceArray<int32_t, 1> position_on(backend, rows_of(cache.position, begin, n));
      const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {n, 8, 512});
      ops::mla_attention(backend,
                         {.out = out.view(),
                          .q_latent = latent_on.constant(),
                          .q_rope = rope_on.constant(),
                          .kv = cache.on(backend),
                          .tokens = {.row = row_on.constant(), .position = position_on.constant()},
                          .layer = cache.layer,
                          .scale = 0.05F});
      return out.download(backend);
    };
    // The same with rows of several tokens, as chunks of prompts are.
    const auto run_rows = [&](Backend& backend) {
      const DeviceArray<Bf16, 3> latent_on(backend, q_latent);
      const DeviceArray<Bf16, 3> rope_on(backend, q_rope);
      const DeviceArray<int32_t, 1> row_on(backend, cache.row);
      const DeviceArray<int32_t, 1> position_on(backend, cache.position);
      const DeviceArray<int32_t, 1> row_begin_on(backend, cache.row_begin);
      const TokenRows tokens{.row = row_on.constant(),
                             .position = position_on.constant(),
                             .row_begin = row_begin_on.constant()};
      const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {n_tokens, 8, 512});
      ops::mla_attention(backend, {.out = out.view(),
                                   .q_latent = latent_on.constant(),
                                   .q_rope = rope_on.constant(),
                                   .kv = cache.on(backend),
                                   .tokens = cache.rows(tokens),
                                   .layer = cache.layer,
                                   .scale = 0.05F});
      return out.download(backend);
    };
    const HostArray<Bf16, 3> all = run(first(), 0, n_tokens);
    EXPECT_TRUE(same_bits(run(backend(), 0, n_tokens), all));
    EXPECT_TRUE(same_bits(run_rows(backend()), all));
    for (const int64_t n : kBatches) {
      for (const int64_t begin : {int64_t{0}, int64_t{100}, n_tokens - n}) {
        EXPECT_TRUE(same_bits(run(backend(), begin, n), rows_of(all, begin, n))) << begin;
      }
    }
  }
}

TEST_P(InvarianceTest, AbsorbedProducts) {
  Rng rng(63);
  const int64_t n_tokens = 70;
  const auto q = filled(rng, Values::normal, HostArray<Bf16, 3>(n_tokens, int64_t{3}, int64_t{64}));
  const auto x =
      filled(rng, Values::normal, HostArray<Bf16, 3>(n_tokens, int64_t{3}, int64_t{512}));
  const auto w =
      filled(rng, Values::normal, HostArray<Bf16, 3>(int64_t{3}, int64_t{64}, int64_t{512}));
  const auto absorb = [&](Backend& backend, int64_t begin, int64_t n) {
    const DeviceArray<Bf16, 3> q_on(backend, rows_of(q, begin, n));
    const DeviceArray<Bf16, 3> w_on(backend, w);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {n, 3, 512});
    ops::absorb_query(backend,
                      {.out = out.view(), .q_nope = q_on.constant(), .w_uk = w_on.constant()});
    return out.download(backend);
  };
  const auto expand = [&](Backend& backend, int64_t begin, int64_t n) {
    const DeviceArray<Bf16, 3> x_on(backend, rows_of(x, begin, n));
    const DeviceArray<Bf16, 3> w_on(backend, w);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {n, 3, 64});
    ops::expand_value(backend, {.out = out.view(), .x = x_on.constant(), .w_uv = w_on.constant()});
    return out.download(backend);
  };
  const HostArray<Bf16, 3> absorbed = absorb(first(), 0, n_tokens);
  const HostArray<Bf16, 3> expanded = expand(first(), 0, n_tokens);
  for (const int64_t n : kBatches) {
    EXPECT_TRUE(same_bits(absorb(backend(), n_tokens - n, n), rows_of(absorbed, n_tokens - n, n)));
    EXPECT_TRUE(same_bits(expand(backend(), n_tokens - n, n), rows_of(expanded, n_tokens - n, n)));
  }
}

void expect_same_bits_in_any_batch(Backend& first, Backend& batched, const MoeCase& c) {
  Rng rng(64);
  const int64_t n_tokens = c.n_tokens;
  Experts weights(rng, c);
  const auto x = filled(rng, Values::normal, HostArray<Bf16, 2>(n_tokens, c.hidden));
  const auto scores = filled(rng, Values::normal, HostArray<float, 2>(n_tokens, c.n_experts));
  const auto run = [&](Backend& backend, int64_t begin, int64_t n) {
    const auto bank = weights.pack(backend);
    const DeviceArray<Bf16, 2> x_on(backend, rows_of(x, begin, n));
    const DeviceArray<float, 2> scores_on(backend, rows_of(scores, begin, n));
    const DeviceArray<float, 1> bias(backend, HostArray<float, 1>(c.n_experts));
    const auto experts = DeviceArray<int32_t, 2>::poisoned(backend, {n, c.top_k});
    const auto shares = DeviceArray<float, 2>::poisoned(backend, {n, c.top_k});
    const auto out = DeviceArray<Bf16, 2>::poisoned(backend, {n, c.hidden});
    ops::moe_experts(backend, {.out = out.view(),
                               .experts = experts.view(),
                               .weights = shares.view(),
                               .x = x_on.constant(),
                               .scores = scores_on.constant(),
                               .bias = bias.constant(),
                               .scaling = 2.0F,
                               .bank = bank.get(),
                               .activation = c.activation});
    return out.download(backend);
  };
  const HostArray<Bf16, 2> all = run(first, 0, n_tokens);
  EXPECT_TRUE(same_bits(run(batched, 0, n_tokens), all));
  for (const int64_t n : kBatches) {
    EXPECT_TRUE(same_bits(run(batched, n_tokens - n, n), rows_of(all, n_tokens - n, n))) << n;
  }
}

// Experts with few rows and with many, by kernels that take them in different pieces.
TEST_P(InvarianceTest, RouteAndExperts) {
  const int64_t n_tokens = 130;
  for (const MoeCase& c : {MoeCase{n_tokens, 96, 48, 8, 3, WeightFormat::bf16, 0, Activation::bf16,
                                   32, WeightFormat::bf16},
                           MoeCase{n_tokens, 160, 256, 40, 8, WeightFormat::int4_group, 32,
                                   Activation::bf16, 64, WeightFormat::bf16},
                           MoeCase{n_tokens, 192, 72, 8, 3, WeightFormat::fp8_block128, 0,
                                   Activation::bf16, 64, WeightFormat::int4_group},
                           MoeCase{n_tokens, 320, 136, 24, 8, WeightFormat::fp8_block128, 0,
                                   Activation::fp8_group128, 136, WeightFormat::fp8_block128}}) {
    SCOPED_TRACE(describe(c));
    expect_same_bits_in_any_batch(first(), backend(), c);
  }
}

TEST_P(InvarianceTest, RmsNorm) {
  Rng rng(65);
  const auto x = filled(rng, Values::outliers, HostArray<Bf16, 2>(int64_t{65}, int64_t{250}));
  const auto weight = filled(rng, Values::normal, HostArray<Bf16, 1>(int64_t{250}));
  const auto run = [&](Backend& backend, int64_t begin, int64_t n) {
    const DeviceArray<Bf16, 2> x_on(backend, rows_of(x, begin, n));
    const DeviceArray<Bf16, 1> weight_on(backend, weight);
    ops::rms_norm(
        backend,
        {.out = x_on.view(), .x = x_on.constant(), .weight = weight_on.constant(), .eps = 1e-6F});
    return x_on.download(backend);
  };
  const HostArray<Bf16, 2> all = run(first(), 0, 65);
  for (const int64_t n : kBatches) {
    EXPECT_TRUE(same_bits(run(backend(), 65 - n, n), rows_of(all, 65 - n, n)));
  }
}

QUIRE_ON_EVERY_BACKEND(InvarianceTest);

}  // namespace

}  // namespace quire::ops_test
