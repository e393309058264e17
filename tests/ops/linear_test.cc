#include "ops/linear.h"

#include "backends.h"
#include "cases.h"
#include "compare.h"

namespace quire::ops_test {

namespace {

using LinearTest = OpTest;

TEST_P(LinearTest, MatchesTheReference) {
  Rng rng(11);
  for (const LinearCase& c : linear_cases()) {
    SCOPED_TRACE(describe(c));
    const auto weight = make_weight(rng, c);
    const DeviceWeight weight_on = on(backend(), *weight);
    const auto x = filled(rng, c.values, HostArray<Bf16, 2>(c.n_tokens, c.n_in));
    const DeviceArray<Bf16, 2> x_on(backend(), x);
    const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, c.n_out});
    const auto out_f32 = DeviceArray<float, 2>::poisoned(backend(), {c.n_tokens, c.n_out});
    ops::linear(backend(), {.out = out.view(),
                            .out_f32 = {},
                            .x = x_on.constant(),
                            .weight = weight_on.matrix,
                            .activation = c.activation});
    ops::linear(backend(), {.out = {},
                            .out_f32 = out_f32.view(),
                            .x = x_on.constant(),
                            .weight = weight_on.matrix,
                            .activation = c.activation});
    ops::Linear host{.out = {},
                     .out_f32 = {},
                     .x = x.view(),
                     .weight = weight->matrix,
                     .activation = c.activation};
    EXPECT_TRUE(matches(out.download(backend()), reference(host)));
    HostArray<float, 2> unrounded(c.n_tokens + 1, c.n_out);  // says which output is meant
    host.out_f32 = unrounded.view();
    EXPECT_TRUE(matches(out_f32.download(backend()), reference(host)));
  }
}

// A view of some columns of a wider buffer, on both sides.
TEST_P(LinearTest, RowsMayBeStrided) {
  Rng rng(12);
  const LinearCase c{6, 64, 24, WeightFormat::bf16};
  const auto weight = make_weight(rng, c);
  const DeviceWeight weight_on = on(backend(), *weight);
  const auto wide = filled(rng, c.values, HostArray<Bf16, 2>(c.n_tokens, int64_t{80}));
  const DeviceArray<Bf16, 2> wide_on(backend(), wide);
  const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, 30});
  const auto columns = [](auto view, int64_t begin, int64_t count) {
    view.data += begin;
    view.shape[1] = count;
    return view;
  };
  ops::linear(backend(), {.out = columns(out.view(), 3, 24),
                          .out_f32 = {},
                          .x = columns(wide_on.constant(), 16, 64),
                          .weight = weight_on.matrix});
  const HostArray<Bf16, 2> found = out.download(backend());
  HostArray<Bf16, 2> inner(c.n_tokens, c.n_out);
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    for (int64_t o = 0; o < 30; ++o) {
      if (o >= 3 && o < 27) {
        inner.view()(t, o - 3) = found.view()(t, o);
      } else {
        EXPECT_EQ(found.view()(t, o).bits, 0xffff);
      }
    }
  }
  EXPECT_TRUE(matches(
      inner,
      reference(ops::Linear{
          .out = {}, .out_f32 = {}, .x = columns(wide.view(), 16, 64), .weight = weight->matrix})));
}

TEST_P(LinearTest, NaNStaysInItsRow) {
  Rng rng(13);
  const LinearCase c{5, 96, 40, WeightFormat::bf16};
  const auto weight = make_weight(rng, c);
  const DeviceWeight weight_on = on(backend(), *weight);
  auto x = filled(rng, c.values, HostArray<Bf16, 2>(c.n_tokens, c.n_in));
  x.view()(2, 95) = Bf16{0x7fc0};
  const DeviceArray<Bf16, 2> x_on(backend(), x);
  const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, c.n_out});
  ops::linear(backend(),
              {.out = out.view(), .out_f32 = {}, .x = x_on.constant(), .weight = weight_on.matrix});
  EXPECT_TRUE(matches(
      out.download(backend()),
      reference(ops::Linear{.out = {}, .out_f32 = {}, .x = x.view(), .weight = weight->matrix})));
}

// As if each side were alone: the bytes where a backend promises them, else within the bounds.
TEST_P(LinearTest, APairIsTwoProducts) {
  Rng rng(13);
  for (const WeightFormat stored : {WeightFormat::bf16, WeightFormat::fp8_block128}) {
    for (const int64_t n_tokens : {1, 9, 20, 40, 70}) {
      const LinearCase first{n_tokens, 256, 200, stored};
      const LinearCase second{n_tokens, 256, 72, stored};
      SCOPED_TRACE(describe(first));
      const auto weights = {make_weight(rng, first), make_weight(rng, second)};
      const auto x = filled(rng, first.values, HostArray<Bf16, 2>(n_tokens, first.n_in));
      const DeviceArray<Bf16, 2> x_on(backend(), x);
      std::vector<DeviceWeight> weights_on;
      std::vector<DeviceArray<Bf16, 2>> out;
      for (const auto& weight : weights) {
        weights_on.push_back(on(backend(), *weight));
        out.push_back(DeviceArray<Bf16, 2>::poisoned(backend(), {n_tokens, weight->matrix.n_out}));
      }
      ops::linear_pair(backend(), {.first = {.out = out[0].view(), .weight = weights_on[0].matrix},
                                   .second = {.out = out[1].view(), .weight = weights_on[1].matrix},
                                   .x = x_on.constant()});
      size_t side = 0;
      for (const auto& weight : weights) {
        const HostArray<Bf16, 2> found = out[side].download(backend());
        EXPECT_TRUE(matches(
            found, reference(ops::Linear{
                       .out = {}, .out_f32 = {}, .x = x.view(), .weight = weight->matrix})));
        const auto alone = DeviceArray<Bf16, 2>::poisoned(backend(), found.shape);
        ops::linear(backend(), {.out = alone.view(),
                                .out_f32 = {},
                                .x = x_on.constant(),
                                .weight = weights_on[side].matrix});
        if (!GetParam().family.empty()) {
          EXPECT_TRUE(same_bits(found, alone.download(backend())));
        }
        ++side;
      }
    }
  }
}

// Weights and outputs next to each other, as a model keeps them: a backend may see one product.
TEST_P(LinearTest, APairMayLieTogether) {
  Rng rng(14);
  for (const int64_t n_tokens : {1, 16, 17, 24, 25, 33, 64, 70}) {
    const LinearCase both{n_tokens, 256, 272, WeightFormat::bf16};
    SCOPED_TRACE(describe(both));
    const auto weight = make_weight(rng, both);
    const DeviceWeight weight_on = on(backend(), *weight);
    const auto part = [&](int64_t begin, int64_t n_out) {
      WeightMatrix out = weight_on.matrix;
      out.n_out = n_out;
      out.bf16 = out.bf16.rows(begin, n_out);
      return out;
    };
    const auto x = filled(rng, both.values, HostArray<Bf16, 2>(n_tokens, both.n_in));
    const DeviceArray<Bf16, 2> x_on(backend(), x);
    const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {n_tokens, both.n_out});
    ops::linear_pair(backend(),
                     {.first = {.out = out.view().columns(0, 200), .weight = part(0, 200)},
                      .second = {.out = out.view().columns(200, 72), .weight = part(200, 72)},
                      .x = x_on.constant()});
    EXPECT_TRUE(matches(
        out.download(backend()),
        reference(ops::Linear{.out = {}, .out_f32 = {}, .x = x.view(), .weight = weight->matrix})));
  }
}

QUIRE_ON_EVERY_BACKEND(LinearTest);

}  // namespace

}  // namespace quire::ops_test
