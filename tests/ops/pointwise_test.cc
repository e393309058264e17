#include <algorithm>

#include "backends.h"
#include "base/text.h"
#include "cases.h"
#include "compare.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gather_rows.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quire::ops_test {

namespace {

using PointwiseTest = OpTest;
using Matrix = HostArray<Bf16, 2>;

std::string describe(const RowsCase& c) {
  return format("%d tokens of %d, values %d", static_cast<int>(c.n_tokens), static_cast<int>(c.dim),
                static_cast<int>(c.values));
}

TEST_P(PointwiseTest, RmsNorm) {
  Rng rng(1);
  for (const RowsCase& c : rows_cases()) {
    SCOPED_TRACE(describe(c));
    const Matrix x = filled(rng, c.values, Matrix(c.n_tokens, c.dim));
    const auto weight = filled(rng, Values::normal, HostArray<Bf16, 1>(c.dim));
    const DeviceArray<Bf16, 2> x_on(backend(), x);
    const DeviceArray<Bf16, 1> weight_on(backend(), weight);
    const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), x.shape);
    ops::RmsNorm args{
        .out = out.view(), .x = x_on.constant(), .weight = weight_on.constant(), .eps = 1e-6F};
    ops::rms_norm(backend(), args);
    const ops::RmsNorm host{.out = {}, .x = x.view(), .weight = weight.view(), .eps = 1e-6F};
    EXPECT_TRUE(matches(out.download(backend()), reference(host)));
    args.out = x_on.view();  // in place
    ops::rms_norm(backend(), args);
    EXPECT_TRUE(same_bits(x_on.download(backend()), out.download(backend())));
  }
}

// The bytes of the two ops that it is.
TEST_P(PointwiseTest, AddRmsNorm) {
  Rng rng(6);
  for (const RowsCase& c : rows_cases()) {
    SCOPED_TRACE(describe(c));
    const DeviceArray<Bf16, 2> h(backend(), filled(rng, c.values, Matrix(c.n_tokens, c.dim)));
    const DeviceArray<Bf16, 2> delta(backend(), filled(rng, c.values, Matrix(c.n_tokens, c.dim)));
    const DeviceArray<Bf16, 1> weight(backend(),
                                      filled(rng, Values::normal, HostArray<Bf16, 1>(c.dim)));
    const auto sum = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, c.dim});
    const auto expected = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, c.dim});
    ops::add(backend(), {.out = sum.view(), .a = h.constant(), .b = delta.constant()});
    ops::rms_norm(
        backend(),
        {.out = expected.view(), .x = sum.constant(), .weight = weight.constant(), .eps = 1e-6F});
    const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {c.n_tokens, c.dim});
    ops::add_rms_norm(backend(), {.out = out.view(),
                                  .h = h.view(),
                                  .delta = delta.constant(),
                                  .weight = weight.constant(),
                                  .eps = 1e-6F});
    EXPECT_TRUE(same_bits(h.download(backend()), sum.download(backend())));
    EXPECT_TRUE(same_bits(out.download(backend()), expected.download(backend())));
  }
}

TEST_P(PointwiseTest, RmsNormOfNaNIsNaNAndStaysInItsRow) {
  Matrix x(int64_t{2}, int64_t{40});
  for (Bf16& value : x.values) value = to_bf16(1.0F);
  x.view()(0, 7) = Bf16{0x7fc0};
  HostArray<Bf16, 1> weight(int64_t{40});
  for (Bf16& value : weight.values) value = to_bf16(1.0F);
  const DeviceArray<Bf16, 2> x_on(backend(), x);
  const DeviceArray<Bf16, 1> weight_on(backend(), weight);
  ops::rms_norm(
      backend(),
      {.out = x_on.view(), .x = x_on.constant(), .weight = weight_on.constant(), .eps = 1e-6F});
  const Matrix out = x_on.download(backend());
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::isnan(to_float(out.view()(0, i))));
    EXPECT_EQ(to_float(out.view()(1, i)), 1.0F);
  }
}

TEST_P(PointwiseTest, AddAndSiluMul) {
  Rng rng(2);
  for (const RowsCase& c : rows_cases()) {
    SCOPED_TRACE(describe(c));
    const Matrix a = filled(rng, c.values, Matrix(c.n_tokens, c.dim));
    const Matrix b = filled(rng, c.values, Matrix(c.n_tokens, c.dim));
    const DeviceArray<Bf16, 2> a_on(backend(), a);
    const DeviceArray<Bf16, 2> b_on(backend(), b);
    const auto sum = DeviceArray<Bf16, 2>::poisoned(backend(), a.shape);
    ops::add(backend(), {.out = sum.view(), .a = a_on.constant(), .b = b_on.constant()});
    EXPECT_TRUE(matches(sum.download(backend()),
                        reference(ops::Add{.out = {}, .a = a.view(), .b = b.view()})));
    const auto gated = DeviceArray<Bf16, 2>::poisoned(backend(), a.shape);
    const ops::SiluMul args{.out = gated.view(), .gate = a_on.constant(), .up = b_on.constant()};
    ops::silu_mul(backend(), args);
    EXPECT_TRUE(matches(gated.download(backend()),
                        reference(ops::SiluMul{.out = {}, .gate = a.view(), .up = b.view()})));
    ops::add(backend(), {.out = b_on.view(), .a = a_on.constant(), .b = b_on.constant()});
    EXPECT_TRUE(same_bits(b_on.download(backend()), sum.download(backend())));
  }
}

TEST_P(PointwiseTest, SiluMulAtTheEnds) {
  Matrix gate(int64_t{1}, int64_t{6});
  Matrix up(int64_t{1}, int64_t{6});
  const float gates[] = {-1e30F, -100, 0, 100, 1e30F, NAN};
  for (int i = 0; i < 6; ++i) {
    gate.values[static_cast<size_t>(i)] = to_bf16(gates[i]);
    up.values[static_cast<size_t>(i)] = to_bf16(2.0F);
  }
  const DeviceArray<Bf16, 2> gate_on(backend(), gate);
  const DeviceArray<Bf16, 2> up_on(backend(), up);
  ops::silu_mul(backend(),
                {.out = gate_on.view(), .gate = gate_on.constant(), .up = up_on.constant()});
  const Matrix out = gate_on.download(backend());
  EXPECT_EQ(to_float(out.values[0]), 0.0F);
  EXPECT_NEAR(to_float(out.values[1]), 0.0F, 1e-30);
  EXPECT_EQ(to_float(out.values[2]), 0.0F);
  EXPECT_EQ(to_float(out.values[3]), 200.0F);
  EXPECT_EQ(to_float(out.values[4]), 2 * to_float(gate.values[4]));
  EXPECT_TRUE(std::isnan(to_float(out.values[5])));
}

struct RopeShape {
  int64_t n_tokens, n_heads, rope_dim, stride;
};

TEST_P(PointwiseTest, RopeInStridedRows) {
  Rng rng(3);
  for (const RopeShape& shape : {RopeShape{5, 8, 64, 192}, RopeShape{1, 1, 64, 576},
                                 RopeShape{0, 8, 64, 64}, RopeShape{33, 3, 10, 17}}) {
    SCOPED_TRACE(shape.rope_dim);
    // Each head's row is wider than what rotates, as in a query of nope and rope parts.
    const auto wide = filled(rng, Values::normal,
                             HostArray<Bf16, 3>(shape.n_tokens, shape.n_heads, shape.stride));
    HostArray<int32_t, 1> positions(shape.n_tokens);
    for (int32_t& p : positions.values) p = static_cast<int32_t>(rng.next_below(4000));
    HostArray<float, 2> cos(int64_t{4000}, shape.rope_dim / 2);
    HostArray<float, 2> sin(int64_t{4000}, shape.rope_dim / 2);
    for (size_t i = 0; i < cos.values.size(); ++i) {
      const double angle = rng.next_float() * 6.28;
      cos.values[i] = static_cast<float>(std::cos(angle));
      sin.values[i] = static_cast<float>(std::sin(angle));
    }
    const DeviceArray<Bf16, 3> wide_on(backend(), wide);
    const DeviceArray<int32_t, 1> positions_on(backend(), positions);
    const DeviceArray<float, 2> cos_on(backend(), cos);
    const DeviceArray<float, 2> sin_on(backend(), sin);
    View<Bf16, 3> rotated = wide_on.view();
    const int64_t skip = shape.stride - shape.rope_dim;
    rotated.data += skip;
    rotated.shape[2] = shape.rope_dim;
    ops::rope(backend(), {.x = rotated,
                          .positions = positions_on.constant(),
                          .cos = cos_on.constant(),
                          .sin = sin_on.constant()});
    HostArray<Bf16, 3> before(shape.n_tokens, shape.n_heads, shape.rope_dim);
    HostArray<Bf16, 3> after = before;
    const HostArray<Bf16, 3> found = wide_on.download(backend());
    for (int64_t t = 0; t < shape.n_tokens; ++t) {
      for (int64_t h = 0; h < shape.n_heads; ++h) {
        for (int64_t i = 0; i < shape.stride; ++i) {
          if (i < skip) {
            EXPECT_EQ(found.view()(t, h, i).bits, wide.view()(t, h, i).bits);
          } else {
            before.view()(t, h, i - skip) = wide.view()(t, h, i);
            after.view()(t, h, i - skip) = found.view()(t, h, i);
          }
        }
      }
    }
    EXPECT_TRUE(matches(after, reference(ops::Rope{.x = before.view(),
                                                   .positions = positions.view(),
                                                   .cos = cos.view(),
                                                   .sin = sin.view()})));
  }
}

TEST_P(PointwiseTest, EmbedAndGatherRowsCopyBits) {
  Matrix table(int64_t{9}, int64_t{37});
  for (size_t i = 0; i < table.values.size(); ++i) {
    table.values[i] = Bf16{static_cast<uint16_t>(i * 199)};  // NaN patterns among them
  }
  HostArray<int32_t, 1> ids(int64_t{5});
  ids.values = {8, 0, 3, 3, 1};
  const DeviceArray<Bf16, 2> table_on(backend(), table);
  const DeviceArray<int32_t, 1> ids_on(backend(), ids);
  const auto embedded = DeviceArray<Bf16, 2>::poisoned(backend(), {5, 37});
  const auto gathered = DeviceArray<Bf16, 2>::poisoned(backend(), {5, 37});
  ops::embed(backend(),
             {.out = embedded.view(), .ids = ids_on.constant(), .table = table_on.constant()});
  ops::gather_rows(backend(),
                   {.out = gathered.view(), .x = table_on.constant(), .rows = ids_on.constant()});
  Matrix expected(int64_t{5}, int64_t{37});
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 37; ++j) expected.view()(i, j) = table.view()(ids.view()(i), j);
  }
  EXPECT_TRUE(same_bits(embedded.download(backend()), expected));
  EXPECT_TRUE(same_bits(gathered.download(backend()), expected));
}

TEST_P(PointwiseTest, EmbedGivesZerosForRowsOfOtherRanks) {
  const Matrix table = [] {
    Matrix out(int64_t{4}, int64_t{40});
    std::fill(out.values.begin(), out.values.end(), to_bf16(2.0F));
    return out;
  }();
  HostArray<int32_t, 1> ids(int64_t{4});
  ids.values = {11, 12, 15, 16};
  const DeviceArray<Bf16, 2> table_on(backend(), table);
  const DeviceArray<int32_t, 1> ids_on(backend(), ids);
  const auto out = DeviceArray<Bf16, 2>::poisoned(backend(), {4, 40});
  ops::embed(
      backend(),
      {.out = out.view(), .ids = ids_on.constant(), .table = table_on.constant(), .first_id = 12});
  const Matrix found = out.download(backend());
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(to_float(found.view()(0, i)), 0.0F);
    EXPECT_EQ(to_float(found.view()(1, i)), 2.0F);
    EXPECT_EQ(to_float(found.view()(2, i)), 2.0F);
    EXPECT_EQ(to_float(found.view()(3, i)), 0.0F);
  }
}

QUIRE_ON_EVERY_BACKEND(PointwiseTest);

}  // namespace

}  // namespace quire::ops_test
