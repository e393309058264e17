#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "backends.h"
#include "cases.h"
#include "compare.h"
#include "ops/kv_append.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/rope.h"

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
    append_reference(&cache);
  }

  // Whether the step says where rows begin.
  enum class Rows { unknown, known };

  ops::MlaAttention host(Rows rows = Rows::unknown) {
    TokenRows tokens = cache.rows();
    if (rows == Rows::unknown) tokens = {.row = tokens.row, .position = tokens.position};
    return {.out = {},
            .q_latent = std::as_const(q_latent).view(),
            .q_rope = std::as_const(q_rope).view(),
            .kv = cache.host(),
            .tokens = tokens,
            .layer = cache.layer,
            .scale = scale};
  }

  // `before`: an op ahead of the attention, on its copy of the cache.
  using Before = std::function<void(const PagedKv& kv, const TokenRows& tokens)>;

  HostArray<Bf16, 3> run(Backend& backend, Rows rows = Rows::unknown,
                         ops::History history = ops::History::any, const Before& before = {}) {
    const DeviceArray<Bf16, 3> latent_on(backend, q_latent);
    const DeviceArray<Bf16, 3> rope_on(backend, q_rope);
    const DeviceArray<int32_t, 1> row_on(backend, cache.row);
    const DeviceArray<int32_t, 1> position_on(backend, cache.position);
    const DeviceArray<int32_t, 1> row_begin_on(backend, cache.row_begin);
    TokenRows tokens{.row = row_on.constant(), .position = position_on.constant()};
    if (rows == Rows::known) {
      tokens.row_begin = row_begin_on.constant();
      tokens = cache.rows(tokens);
    }
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, q_latent.shape);
    const PagedKv kv = cache.on(backend);
    if (before) before(kv, tokens);
    ops::mla_attention(backend, {.out = out.view(),
                                 .q_latent = latent_on.constant(),
                                 .q_rope = rope_on.constant(),
                                 .kv = kv,
                                 .tokens = tokens,
                                 .layer = cache.layer,
                                 .scale = scale,
                                 .history = history});
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

// What is read ahead of its turn is the same.
TEST_P(AttentionTest, HistoryOfEarlierSteps) {
  Rng rng(31);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Attention attention(rng, c);
    const HostArray<Bf16, 3> expected = attention.run(backend());
    EXPECT_TRUE(same_bits(
        attention.run(backend(), Attention::Rows::unknown, ops::History::of_earlier_steps),
        expected));
  }
}

// A token's own row, wherever in its page, may come from the op before: here it is NaN until then.
TEST_P(AttentionTest, HistoryEndsBeforeTheOwnRow) {
  Rng rng(40);
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    CacheCase c{format, 512, 64, 8, {}};
    for (int32_t p = 0; p < 2 * kPageTokens; ++p) c.rows.push_back({p, p + 1});
    SCOPED_TRACE(name(format));
    Attention attention(rng, c);
    Cache& cache = attention.cache;
    const HostArray<Bf16, 3> expected = attention.run(backend());
    const int64_t n = cache.row[0];
    HostArray<Bf16, 2> latent(n, c.rank);
    HostArray<Bf16, 2> rope(n, c.rope_dim);
    int64_t own = -1;  // among the cached tokens
    for (int64_t t = 0; t < n; ++t) {
      own += c.rows[static_cast<size_t>(t)].end;
      const auto copy = [&](const HostArray<Bf16, 2>& from, HostArray<Bf16, 2>& to) {
        for (int64_t i = 0; i < to[1]; ++i) to.view()(t, i) = from.view()(own, i);
      };
      copy(cache.latent, latent);
      copy(cache.rope, rope);
      const int32_t position = cache.position.values[static_cast<size_t>(t)];
      const int32_t slot = position % kPageTokens;
      std::byte* block = cache.pool.data() + cache.layout.blocks[1].offset +
                         cache.table.view()(t, position / kPageTokens) * cache.layout.page_bytes;
      const auto row_bytes = static_cast<size_t>(cache.layout.row_offset(1));
      std::memset(block + cache.layout.row_offset(slot), 0xff, row_bytes);
      if (format != KvFormat::bf16) {
        std::memset(block + cache.layout.scale_offset(slot), 0xff, 2 * sizeof(float));
      }
    }
    const DeviceArray<Bf16, 2> latent_on(backend(), latent);
    const DeviceArray<Bf16, 2> rope_on(backend(), rope);
    std::optional<DeviceArray<TokenPlace, 1>> places;  // until the attention is done
    const auto append = [&](const PagedKv& kv, const TokenRows& tokens) {
      places.emplace(places_on(backend(), kv, tokens));
      ops::kv_append(backend(), {.kv = kv,
                                 .places = places->constant(),
                                 .layer = cache.layer,
                                 .latent = latent_on.constant(),
                                 .rope = rope_on.constant()});
    };
    const auto settled = ops::History::of_earlier_steps;
    EXPECT_TRUE(
        same_bits(attention.run(backend(), Attention::Rows::unknown, settled, append), expected));
  }
}

// The parts of a token leave each other sums in memory that the next run finds as they found it:
// runs in turn, of other numbers of tokens and parts, give what each gives by itself.
TEST_P(AttentionTest, RunsLeaveNothingBehind) {
  // On a device: a part for each block of a launch.
  const int32_t longest = GetParam().name == "cuda" ? 17'000 : 1'700;
  Rng rng(41);
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    SCOPED_TRACE(name(format));
    std::vector<Attention> attentions;
    std::vector<HostArray<Bf16, 3>> expected;
    const std::vector<CacheCase::Row> rows[] = {{{940, 941}},
                                                {{longest, longest + 1}},
                                                {{70, 71}, {2'000, 2'001}, {15, 16}},
                                                {{900, 901}, {longest / 2, longest / 2 + 1}}};
    for (const auto& of_case : rows) {
      attentions.emplace_back(rng, CacheCase{format, 512, 64, 8, of_case});
      expected.push_back(attentions.back().run(backend()));
      EXPECT_TRUE(matches(expected.back(), reference(attentions.back().host())));
    }
    for (const size_t i : std::vector<size_t>{0, 1, 0, 2, 1, 3, 2, 0, 3, 1}) {
      SCOPED_TRACE(i);
      EXPECT_TRUE(same_bits(
          attentions[i].run(backend(), Attention::Rows::unknown, ops::History::of_earlier_steps),
          expected[i]));
    }
  }
}

TEST_P(AttentionTest, ChunksMatchTheReference) {
  Rng rng(37);
  for (const CacheCase& c : chunk_cases()) {
    SCOPED_TRACE(describe(c));
    Attention attention(rng, c);
    EXPECT_TRUE(matches(attention.run(backend(), Attention::Rows::known),
                        reference(attention.host(Attention::Rows::known))));
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

// The integers of an FP8 key know no NaN: its scale has it. One token a row, and chunks.
TEST_P(AttentionTest, AKeyOfNaNIsSeenByItsSequenceAlone) {
  for (const int32_t begin : {70, 50}) {
    Rng rng(39);
    Attention attention(rng, {KvFormat::fp8_e4m3_584, 512, 64, 2, {{begin, 71}, {begin, 71}}});
    const HostArray<Bf16, 3> clean = attention.run(backend(), Attention::Rows::known);
    const KvPageLayout& layout = attention.cache.layout;
    // Token 3 of row 0.
    std::memset(attention.cache.pool.data() +
                    attention.cache.table.view()(0, 0) * layout.page_bytes +
                    layout.blocks[1].offset + layout.scale_offset(3) + sizeof(float),
                0xff, sizeof(float));
    const HostArray<Bf16, 3> found = attention.run(backend(), Attention::Rows::known);
    const int64_t n_tokens = found[0] / 2;  // of a row
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t c = 0; c < 512; ++c) {
          ASSERT_TRUE(std::isnan(to_float(found.view()(t, h, c)))) << t;
          ASSERT_EQ(found.view()(n_tokens + t, h, c).bits, clean.view()(n_tokens + t, h, c).bits);
        }
      }
    }
  }
}

TEST_P(AttentionTest, AbsorbQueryAndExpandValue) {
  Rng rng(34);
  for (const int64_t n_tokens : {0, 1, 5, 33, 64, 70}) {
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

// The same cache and rope, with queries and weights by head.
struct ByHead {
  struct Dims {
    int64_t nope, v;
  };

  ByHead(Rng& rng, const CacheCase& c, const Dims& dims)
      : attention(rng, c),
        q_nope(filled(rng, c.values, HostArray<Bf16, 3>(tokens(), c.n_heads, dims.nope))),
        w_uk(c.n_heads, dims.nope, int64_t{c.rank}),
        w_uv(c.n_heads, dims.v, int64_t{c.rank}) {
    // Keys and values of about 1.
    const float size = 3.5F / std::sqrt(static_cast<float>(c.rank));
    for (HostArray<Bf16, 3>* w : {&w_uk, &w_uv}) {
      for (Bf16& x : w->values) x = to_bf16((rng.next_float() - 0.5F) * size);
    }
    attention.scale = 1.0F / std::sqrt(static_cast<float>(dims.nope + c.rope_dim));
  }

  int64_t tokens() const { return attention.cache.row[0]; }

  Expected expected() {
    return reference(ops::MlaPrefillAttention{.out = {.shape = {tokens(), w_uv[0], w_uv[1]}},
                                              .q_nope = std::as_const(q_nope).view(),
                                              .q_rope = std::as_const(attention.q_rope).view(),
                                              .w_uk = std::as_const(w_uk).view(),
                                              .w_uv = std::as_const(w_uv).view(),
                                              .kv = attention.cache.host(),
                                              .tokens = attention.cache.rows(),
                                              .layer = attention.cache.layer,
                                              .scale = attention.scale});
  }

  // [n_tokens, n_heads, v]; lone tokens stay poison.
  HostArray<Bf16, 3> run(Backend& backend) {
    const DeviceArray<Bf16, 3> nope_on(backend, q_nope);
    const DeviceArray<Bf16, 3> rope_on(backend, attention.q_rope);
    const DeviceArray<Bf16, 3> w_uk_on(backend, w_uk);
    const DeviceArray<Bf16, 3> w_uv_on(backend, w_uv);
    const DeviceArray<int32_t, 1> row_on(backend, attention.cache.row);
    const DeviceArray<int32_t, 1> position_on(backend, attention.cache.position);
    const DeviceArray<int32_t, 1> row_begin_on(backend, attention.cache.row_begin);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {tokens(), w_uv[0], w_uv[1]});
    ops::mla_prefill_attention(
        backend, {.out = out.view(),
                  .q_nope = nope_on.constant(),
                  .q_rope = rope_on.constant(),
                  .w_uk = w_uk_on.constant(),
                  .w_uv = w_uv_on.constant(),
                  .kv = attention.cache.on(backend),
                  .tokens = attention.cache.rows({.row = row_on.constant(),
                                                  .position = position_on.constant(),
                                                  .row_begin = row_begin_on.constant()}),
                  .layer = attention.cache.layer,
                  .scale = attention.scale});
    return out.download(backend);
  }

  // The same by the absorbed form, for every token.
  HostArray<Bf16, 3> run_absorbed(Backend& backend) {
    const DeviceArray<Bf16, 3> nope_on(backend, q_nope);
    const DeviceArray<Bf16, 3> w_uk_on(backend, w_uk);
    const DeviceArray<Bf16, 3> w_uv_on(backend, w_uv);
    const auto latent = DeviceArray<Bf16, 3>::poisoned(backend, attention.q_latent.shape);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend, {tokens(), w_uv[0], w_uv[1]});
    ops::absorb_query(
        backend, {.out = latent.view(), .q_nope = nope_on.constant(), .w_uk = w_uk_on.constant()});
    attention.q_latent = latent.download(backend);
    const DeviceArray<Bf16, 3> attended(backend, attention.run(backend, Attention::Rows::known));
    ops::expand_value(backend,
                      {.out = out.view(), .x = attended.constant(), .w_uv = w_uv_on.constant()});
    return out.download(backend);
  }

  Attention attention;
  HostArray<Bf16, 3> q_nope, w_uk, w_uv;
};

template <class Array>
Array without_rows(const Array& from, int64_t n) {
  Array out = from;
  const auto row = static_cast<int64_t>(from.values.size()) / from.shape[0];
  out.shape[0] -= n;
  out.values.erase(out.values.begin(), out.values.begin() + n * row);
  return out;
}

TEST_P(AttentionTest, ByHeadMatchesTheReference) {
  struct Case {
    CacheCase cache;
    ByHead::Dims dims;
  };
  Rng rng(35);
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    for (const Case& c :
         {Case{{format, 512, 64, 1, {{0, 64}}}, {128, 128}},
          Case{{format, 512, 64, 2, {{63, 64}, {200, 201}, {0, 130}, {7, 7}, {100, 333}, {5, 6}}},
               {128, 128}},
          Case{{format, 512, 64, 8, {{0, 70}, {300, 301}}}, {32, 32}},
          Case{{format, 32, 16, 5, {{100, 240}, {0, 9}}}, {16, 24}},
          Case{{format, 32, 16, 16, {{0, 257}}}, {64, 48}},
          // Few queries and many keys, which may be split.
          Case{{format, 32, 16, 2, {{9, 10}, {1100, 1130}, {0, 90}}}, {32, 32}}}) {
      SCOPED_TRACE(describe(c.cache));
      ByHead by_head(rng, c.cache, c.dims);
      const HostArray<Bf16, 3> found = by_head.run(backend());
      const int64_t n_lone = by_head.attention.cache.rows().n_lone;
      for (int64_t t = 0; t < n_lone; ++t) EXPECT_EQ(found.view()(t, 0, 0).bits, 0xffff) << t;
      EXPECT_TRUE(matches(without_rows(found, n_lone), by_head.expected()));
    }
  }
}

// The bytes of rope on one part of the query and of absorb_query on the other.
TEST_P(AttentionTest, AbsorbQueryRotatesTheRest) {
  Rng rng(37);
  for (const int64_t n_tokens : {1, 9, 70}) {
    SCOPED_TRACE(n_tokens);
    const auto q =
        filled(rng, Values::normal, HostArray<Bf16, 3>(n_tokens, int64_t{2}, int64_t{192}));
    const DeviceArray<Bf16, 3> w_uk(
        backend(),
        filled(rng, Values::normal, HostArray<Bf16, 3>(int64_t{2}, int64_t{128}, int64_t{512})));
    const DeviceArray<float, 2> cos(
        backend(), filled(rng, Values::normal, HostArray<float, 2>(int64_t{100}, int64_t{32})));
    const DeviceArray<float, 2> sin(
        backend(), filled(rng, Values::normal, HostArray<float, 2>(int64_t{100}, int64_t{32})));
    HostArray<int32_t, 1> positions(n_tokens);
    for (int32_t& x : positions.values) x = static_cast<int32_t>(rng.next_below(100));
    const DeviceArray<int32_t, 1> positions_on(backend(), positions);
    const DeviceArray<Bf16, 3> together(backend(), q);
    const DeviceArray<Bf16, 3> apart(backend(), q);
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend(), {n_tokens, 2, 512});
    const auto expected = DeviceArray<Bf16, 3>::poisoned(backend(), {n_tokens, 2, 512});
    ops::absorb_query(backend(), {.out = out.view(),
                                  .q_nope = together.view().columns(0, 128),
                                  .w_uk = w_uk.constant(),
                                  .q_rope = together.view().columns(128, 64),
                                  .positions = positions_on.constant(),
                                  .cos = cos.constant(),
                                  .sin = sin.constant()});
    ops::absorb_query(
        backend(),
        {.out = expected.view(), .q_nope = apart.view().columns(0, 128), .w_uk = w_uk.constant()});
    ops::rope(backend(), {.x = apart.view().columns(128, 64),
                          .positions = positions_on.constant(),
                          .cos = cos.constant(),
                          .sin = sin.constant()});
    EXPECT_TRUE(same_bits(out.download(backend()), expected.download(backend())));
    EXPECT_TRUE(same_bits(together.download(backend()), apart.download(backend())));
  }
}

// Values are about N(0, 1). What separates the two forms is the rounding of k and q_latent, each
// 2^-9 of a score in the mean square; of v and the latent sum, 2^-9 of a unit value each; of
// weights; and 2^-9 at the end of both. Four standard deviations of their sum.
void expect_alike(const HostArray<Bf16, 3>& x, const HostArray<Bf16, 3>& y) {
  ASSERT_EQ(x.shape, y.shape);
  double square = 0;
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double error = to_float(x.values[i]) - to_float(y.values[i]);
    square += error * error;
    EXPECT_LE(std::abs(error), 0.05) << position_of(i, x.shape);
  }
  EXPECT_LE(std::sqrt(square / static_cast<double>(x.values.size())), 0.01);
}

TEST_P(AttentionTest, AbsorbedEqualsByHead) {
  Rng rng(36);
  ByHead by_head(rng, {KvFormat::bf16, 512, 64, 2, {{0, 100}}}, {32, 32});
  const HostArray<Bf16, 3> found = by_head.run(backend());
  expect_alike(found, by_head.run_absorbed(backend()));
}

// More keys than a device expands at once: sums go from round to round.
TEST_P(AttentionTest, ByHeadInRounds) {
  if (backend().name() == "cpu") GTEST_SKIP() << "one round, and a plain one";
  Rng rng(38);
  ByHead by_head(rng, {KvFormat::fp8_e4m3_584, 32, 16, 64, {{11990, 12000}, {300, 500}, {0, 140}}},
                 {128, 128});
  const HostArray<Bf16, 3> found = by_head.run(backend());
  expect_alike(found, by_head.run_absorbed(backend()));
}

QUIRE_ON_EVERY_BACKEND(AttentionTest);

}  // namespace

}  // namespace quire::ops_test
