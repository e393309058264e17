#include <cmath>

#include "backends.h"
#include "cases.h"
#include "compare.h"
#include "ops/kv_append.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"

namespace quire::ops_test {

namespace {

using AttentionTest = OpTest;

// A cache filled by the reference, and queries for its step.
struct Attention {
  Attention(Rng& rng, const CacheCase& c)
      : cache(rng, c),
        q_latent(filled(rng, c.values, HostArray<Bf16, 3>(cache.row[0], c.n_heads, c.rank))),
        q_rope(filled(rng, c.values, HostArray<Bf16, 3>(cache.row[0], c.n_heads, c.rope_dim))),
        scale(2.0F / std::sqrt(static_cast<float>(c.rank + c.rope_dim))) {
    if (c.values == Values::outliers) scale *= 1e-4F;  // else one token has all the weight
    append_reference({.kv = cache.host(),
                      .tokens = {.row = std::as_const(cache.all_row).view(),
                                 .position = std::as_const(cache.all_position).view()},
                      .layer = cache.layer,
                      .latent = std::as_const(cache.latent).view(),
                      .rope = std::as_const(cache.rope).view()});
  }

  ops::MlaAttention host() {
    return {.out = {},
            .q_latent = std::as_const(q_latent).view(),
            .q_rope = std::as_const(q_rope).view(),
            .kv = cache.host(),
            .tokens = {.row = std::as_const(cache.row).view(),
                       .position = std::as_const(cache.position).view()},
            .layer = cache.layer,
            .scale = scale};
  }

  HostArray<Bf16, 3> run(Backend& backend) {
    const DeviceArray<Bf16, 3> latent_on(backend, q_latent);
    const DeviceArray<Bf16, 3> rope_on(backend, q_rope);
    const DeviceArray<int32_t, 1> row_on(backend, cache.row);
    const DeviceArray<int32_t, 1> position_on(backend, cache.position);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, q_latent.shape);
    ops::mla_attention(backend,
                       {.out = out.view(),
                        .q_latent = latent_on.constant(),
                        .q_rope = rope_on.constant(),
                        .kv = cache.on(backend),
                        .tokens = {.row = row_on.constant(), .position = position_on.constant()},
                        .layer = cache.layer,
                        .scale = scale});
    return out.download(backend);
  }

  Cache cache;
  HostArray<Bf16, 3> q_latent, q_rope;
  float scale;
};

// Every byte of the pool that holds no token is NaN: what matches did not read it.
TEST_P(AttentionTest, MlaMatchesTheReference) {
  Rng rng(31);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Attention attention(rng, c);
    EXPECT_TRUE(matches(attention.run(backend()), reference(attention.host())));
  }
}

// One token dominates at the very end: earlier sums shrink to nothing, without overflow.
TEST_P(AttentionTest, ScoresFarApart) {
  Rng rng(32);
  Attention attention(rng, {KvFormat::bf16, 512, 64, 2, {{150, 151}}});
  attention.scale = 100.0F;
  EXPECT_TRUE(matches(attention.run(backend()), reference(attention.host())));
}

TEST_P(AttentionTest, NaNOfOneSequenceStaysThere) {
  Rng rng(33);
  Attention attention(rng, {KvFormat::bf16, 512, 64, 2, {{70, 71}, {70, 71}}});
  const HostArray<Bf16, 3> clean = attention.run(backend());
  const KvPageLayout& layout = attention.cache.layout;
  // Token 3 of row 0.
  std::memset(attention.cache.pool.data() + attention.cache.table.view()(0, 0) * layout.page_bytes +
                  layout.blocks[1].offset + layout.row_offset(3),
              0xff, 1152);
  const HostArray<Bf16, 3> found = attention.run(backend());
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t c = 0; c < 512; ++c) {
      EXPECT_TRUE(std::isnan(to_float(found.view()(0, h, c))));
      EXPECT_EQ(found.view()(1, h, c).bits, clean.view()(1, h, c).bits);
    }
  }
}

TEST_P(AttentionTest, AbsorbQueryAndExpandValue) {
  Rng rng(34);
  for (const int64_t n_tokens : {0, 1, 5, 33}) {
    SCOPED_TRACE(n_tokens);
    const int64_t n_heads = 3;
    const auto q = filled(rng, Values::normal, HostArray<Bf16, 3>(n_tokens, n_heads, int64_t{96}));
    const auto w_uk =
        filled(rng, Values::normal, HostArray<Bf16, 3>(n_heads, int64_t{80}, int64_t{136}));
    const auto w_uv =
        filled(rng, Values::normal, HostArray<Bf16, 3>(n_heads, int64_t{50}, int64_t{136}));
    const DeviceArray<Bf16, 3> q_on(backend(), q);
    const DeviceArray<Bf16, 3> w_uk_on(backend(), w_uk);
    const DeviceArray<Bf16, 3> w_uv_on(backend(), w_uv);
    const auto latent = DeviceArray<Bf16, 3>::poisoned(backend(), {n_tokens, n_heads, 136});
    const auto value = DeviceArray<Bf16, 3>::poisoned(backend(), {n_tokens, n_heads, 50});
    const auto nope = [](View<const Bf16, 3> view) {  // the first 80 of 96
      view.shape[2] = 80;
      return view;
    };
    ops::absorb_query(
        backend(),
        {.out = latent.view(), .q_nope = nope(q_on.constant()), .w_uk = w_uk_on.constant()});
    ops::expand_value(backend(),
                      {.out = value.view(), .x = latent.constant(), .w_uv = w_uv_on.constant()});
    const HostArray<Bf16, 3> latent_found = latent.download(backend());
    EXPECT_TRUE(matches(
        latent_found,
        reference(ops::AbsorbQuery{.out = {}, .q_nope = nope(q.view()), .w_uk = w_uk.view()})));
    EXPECT_TRUE(matches(
        value.download(backend()),
        reference(ops::ExpandValue{.out = {}, .x = latent_found.view(), .w_uv = w_uv.view()})));
  }
}

struct PrefillShape {
  int64_t n_tokens, n_heads, nope_dim, rope_dim, v_dim;
};

struct Prefill {
  Prefill(Rng& rng, const PrefillShape& s)
      : q_nope(filled(rng, Values::normal, HostArray<Bf16, 3>(s.n_tokens, s.n_heads, s.nope_dim))),
        k_nope(filled(rng, Values::normal, HostArray<Bf16, 3>(s.n_tokens, s.n_heads, s.nope_dim))),
        v(filled(rng, Values::normal, HostArray<Bf16, 3>(s.n_tokens, s.n_heads, s.v_dim))),
        q_rope(filled(rng, Values::normal, HostArray<Bf16, 3>(s.n_tokens, s.n_heads, s.rope_dim))),
        k_rope(filled(rng, Values::normal, HostArray<Bf16, 2>(s.n_tokens, s.rope_dim))) {}
  HostArray<Bf16, 3> q_nope, k_nope, v, q_rope;
  HostArray<Bf16, 2> k_rope;
};

TEST_P(AttentionTest, PrefillMatchesTheReference) {
  Rng rng(35);
  for (const PrefillShape& s : {PrefillShape{0, 2, 128, 64, 128}, PrefillShape{1, 1, 128, 64, 128},
                                PrefillShape{70, 3, 64, 64, 48}, PrefillShape{129, 2, 20, 6, 13}}) {
    SCOPED_TRACE(s.n_tokens);
    const Prefill p(rng, s);
    const DeviceArray<Bf16, 3> q_nope(backend(), p.q_nope);
    const DeviceArray<Bf16, 3> q_rope(backend(), p.q_rope);
    const DeviceArray<Bf16, 3> k_nope(backend(), p.k_nope);
    const DeviceArray<Bf16, 2> k_rope(backend(), p.k_rope);
    const DeviceArray<Bf16, 3> v(backend(), p.v);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend(), p.v.shape);
    const auto lse = DeviceArray<float, 2>::poisoned(backend(), {s.n_tokens, s.n_heads});
    ops::MlaPrefillAttention args{.out = out.view(),
                                  .lse = lse.view(),
                                  .q_nope = q_nope.constant(),
                                  .q_rope = q_rope.constant(),
                                  .k_nope = k_nope.constant(),
                                  .k_rope = k_rope.constant(),
                                  .v = v.constant(),
                                  .scale = 0.1F};
    ops::mla_prefill_attention(backend(), args);
    const PrefillExpected expected = reference(ops::MlaPrefillAttention{.out = {},
                                                                        .lse = {},
                                                                        .q_nope = p.q_nope.view(),
                                                                        .q_rope = p.q_rope.view(),
                                                                        .k_nope = p.k_nope.view(),
                                                                        .k_rope = p.k_rope.view(),
                                                                        .v = p.v.view(),
                                                                        .scale = 0.1F});
    EXPECT_TRUE(matches(out.download(backend()), expected.out));
    EXPECT_TRUE(matches(lse.download(backend()), expected.lse));
  }
}

// The two forms are one function: k_nope = W_UK c and v = W_UV c for the same latents. What
// separates them is the rounding to bf16 of k_nope, v, the absorbed query and the latent sum.
TEST_P(AttentionTest, AbsorbedEqualsNonAbsorbed) {
  Rng rng(36);
  const int64_t n = 100;
  const int64_t heads = 2;
  const int64_t nope = 32;
  Attention a(rng, {KvFormat::bf16, 512, 64, heads, {{0, static_cast<int32_t>(n)}}});
  const auto small = [&](HostArray<Bf16, 3> array) {
    for (Bf16& x : array.values) x = to_bf16((rng.next_float() - 0.5F) * 0.15F);
    return array;
  };
  const auto w_uk = small(HostArray<Bf16, 3>(heads, nope, int64_t{512}));
  const auto w_uv = small(HostArray<Bf16, 3>(heads, nope, int64_t{512}));
  const auto q_nope = filled(rng, Values::normal, HostArray<Bf16, 3>(n, heads, nope));
  HostArray<Bf16, 3> k_nope(n, heads, nope);
  HostArray<Bf16, 3> v(n, heads, nope);
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < nope; ++d) {
        double key = 0;
        double value = 0;
        for (int64_t c = 0; c < 512; ++c) {
          const double latent = to_float(a.cache.latent.view()(t, c));
          key += to_float(w_uk.view()(h, d, c)) * latent;
          value += to_float(w_uv.view()(h, d, c)) * latent;
        }
        k_nope.view()(t, h, d) = to_bf16(static_cast<float>(key));
        v.view()(t, h, d) = to_bf16(static_cast<float>(value));
      }
    }
  }
  const DeviceArray<Bf16, 3> q_nope_on(backend(), q_nope);
  const DeviceArray<Bf16, 3> w_uk_on(backend(), w_uk);
  const DeviceArray<Bf16, 3> w_uv_on(backend(), w_uv);
  const auto q_latent = DeviceArray<Bf16, 3>::poisoned(backend(), {n, heads, 512});
  ops::absorb_query(
      backend(),
      {.out = q_latent.view(), .q_nope = q_nope_on.constant(), .w_uk = w_uk_on.constant()});
  a.q_latent = q_latent.download(backend());
  const DeviceArray<Bf16, 3> attended(backend(), a.run(backend()));
  const auto absorbed = DeviceArray<Bf16, 3>::poisoned(backend(), {n, heads, nope});
  ops::expand_value(backend(),
                    {.out = absorbed.view(), .x = attended.constant(), .w_uv = w_uv_on.constant()});
  const DeviceArray<Bf16, 3> q_rope_on(backend(), a.q_rope);
  const DeviceArray<Bf16, 3> k_nope_on(backend(), k_nope);
  const DeviceArray<Bf16, 2> k_rope_on(backend(), a.cache.rope);
  const DeviceArray<Bf16, 3> v_on(backend(), v);
  const auto plain = DeviceArray<Bf16, 3>::poisoned(backend(), {n, heads, nope});
  ops::mla_prefill_attention(backend(), {.out = plain.view(),
                                         .lse = {},
                                         .q_nope = q_nope_on.constant(),
                                         .q_rope = q_rope_on.constant(),
                                         .k_nope = k_nope_on.constant(),
                                         .k_rope = k_rope_on.constant(),
                                         .v = v_on.constant(),
                                         .scale = a.scale});
  const HostArray<Bf16, 3> x = absorbed.download(backend());
  const HostArray<Bf16, 3> y = plain.download(backend());
  // Values are about N(0, 1). Rounded on one side: k_nope and q_latent, each 2^-9 of a score of
  // about 6 in the mean square over 32 terms; v and the latent sum, 2^-9 of a unit value each;
  // 2^-9 at the end of both. Four standard deviations of their sum.
  double square = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double error = to_float(x.values[i]) - to_float(y.values[i]);
    square += error * error;
    EXPECT_LE(std::abs(error), 0.05) << position_of(i, x.shape);
  }
  EXPECT_LE(std::sqrt(square / static_cast<double>(x.values.size())), 0.01);
}

QUIRE_ON_EVERY_BACKEND(AttentionTest);

}  // namespace

}  // namespace quire::ops_test
