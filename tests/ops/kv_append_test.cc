#include "ops/kv_append.h"

#include <cmath>
#include <set>

#include "backends.h"
#include "cases.h"
#include "ops/append_latent.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "reference.h"

namespace quire::ops_test {

namespace {

using KvAppendTest = OpTest;

// Tokens [begin, end) of the cache's list, appended on a backend.
struct Part {
  int64_t begin;
  int64_t end;
};

void append(Backend& backend, const Cache& cache, const PagedKv& kv, Part part) {
  const DeviceArray<Bf16, 2> latent(backend, cache.latent);
  const DeviceArray<Bf16, 2> rope(backend, cache.rope);
  const DeviceArray<int32_t, 1> row(backend, cache.all_row);
  const DeviceArray<int32_t, 1> position(backend, cache.all_position);
  const int64_t n = part.end - part.begin;
  const TokenRows tokens{.row = row.constant().rows(part.begin, n),
                         .position = position.constant().rows(part.begin, n)};
  const DeviceArray<TokenPlace, 1> places = places_on(backend, kv, tokens);
  ops::kv_append(backend, {.kv = kv,
                           .places = places.constant(),
                           .layer = cache.layer,
                           .latent = latent.constant().rows(part.begin, n),
                           .rope = rope.constant().rows(part.begin, n)});
}

TEST_P(KvAppendTest, WritesTheBytesOfTheFormatAndNoOthers) {
  Rng rng(21);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Cache cache(rng, c);
    const PagedKv kv = cache.on(backend());
    const int64_t n = cache.latent[0];
    // In two calls and one token twice: chunking changes nothing, and appending is idempotent.
    append(backend(), cache, kv, {0, n / 3});
    append(backend(), cache, kv, {n / 3, n});
    append(backend(), cache, kv, {0, std::min<int64_t>(n, 1)});
    append_reference(&cache);
    EXPECT_TRUE(cache.pool_of(backend(), kv) == cache.pool);
  }
}

// Every significand of bfloat16 over every other, where quotients are normal in e4m3, denormal and
// zero: what divides by a short cut divides right.
TEST_P(KvAppendTest, DividesEverySignificand) {
  Rng rng(24);
  constexpr int32_t kSignificands = 128;
  const std::vector<int> below{1, 9, 15};  // exponents of the largest value, by how much
  const auto n = kSignificands * static_cast<int32_t>(below.size());
  Cache cache(rng, {KvFormat::fp8_e4m3_584, 512, 64, 1, {{0, n}}});
  const auto fill = [&](View<Bf16, 2> rows) {
    for (int64_t t = 0; t < n; ++t) {
      const int shift = below[static_cast<size_t>(t / kSignificands)];
      for (int64_t i = 0; i < rows[1]; ++i) {
        const auto of_value = static_cast<float>(kSignificands + i % kSignificands);
        const float x = std::ldexp(of_value, -7 - shift - static_cast<int>(i / kSignificands));
        rows(t, i) = to_bf16(i % 3 == 0 ? -x : x);
      }
      rows(t, 0) = to_bf16(static_cast<float>(kSignificands + t % kSignificands) / kSignificands);
    }
  };
  fill(cache.latent.view());
  fill(cache.rope.view());
  const PagedKv kv = cache.on(backend());
  append(backend(), cache, kv, {0, n});
  append_reference(&cache);
  EXPECT_TRUE(cache.pool_of(backend(), kv) == cache.pool);
}

// Keys at the ends of bfloat16: one that is not finite reads as NaN, so that its row is stopped,
// and leaves its neighbours alone; one that is next to nothing reads as zero.
TEST_P(KvAppendTest, KeysThatAreNotFiniteReadAsNaN) {
  Rng rng(25);
  constexpr int32_t kRows = 7;
  Cache cache(rng, {KvFormat::fp8_e4m3_584, 512, 64, 1, {{0, kRows}}});
  const uint16_t bits[kRows] = {0x7f80, 0xff80, 0x7fc1, 0xff81, 0x7f7f, 0x0001, 0x0000};
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < 64 && t > 4; ++i) cache.rope.view()(t, i) = {0};
    cache.rope.view()(t, 9 * t) = {bits[t]};
  }
  const PagedKv kv = cache.on(backend());
  append(backend(), cache, kv, {0, kRows});
  const std::vector<std::byte> pool = cache.pool_of(backend(), kv);
  append_reference(&cache);
  EXPECT_TRUE(pool == cache.pool);
  const std::byte* block =
      pool.data() + cache.table.values[0] * cache.layout.page_bytes + cache.layout.blocks[1].offset;
  for (int32_t t = 0; t < kRows; ++t) {
    SCOPED_TRACE(t);
    float scale;
    std::memcpy(&scale, block + cache.layout.scale_offset(t) + sizeof(scale), sizeof(scale));
    EXPECT_EQ(std::isnan(scale), t < 4);
    int n_zero = 0;
    for (int64_t i = 0; i < 64; ++i) {
      n_zero += block[cache.layout.row_offset(t) + 512 + i] == std::byte{0} ? 1 : 0;
    }
    EXPECT_EQ(n_zero, t == 4 ? 63 : 64);  // beside 3.4e38 the other values are nothing
  }
}

// The controls of `quire eval` round the bytes of a row: each has zero low bits, and no value moves
// by more than half of the coarser step.
TEST_P(KvAppendTest, DropsMantissaBits) {
  Rng rng(22);
  for (const int bits : {0, 1, 2}) {
    Cache cache(rng, {KvFormat::fp8_e4m3_584, 512, 64, 1, {{0, 1}}});
    const PagedKv kv = cache.on(backend());
    const DeviceArray<Bf16, 2> latent(backend(), cache.latent);
    const DeviceArray<Bf16, 2> rope(backend(), cache.rope);
    const DeviceArray<int32_t, 1> zero(backend(), cache.all_row);
    const DeviceArray<TokenPlace, 1> places =
        places_on(backend(), kv, {.row = zero.constant(), .position = zero.constant()});
    ops::kv_append(backend(), {.kv = kv,
                               .places = places.constant(),
                               .layer = cache.layer,
                               .latent = latent.constant(),
                               .rope = rope.constant(),
                               .fp8_bits_dropped = bits});
    const std::vector<std::byte> pool = cache.pool_of(backend(), kv);
    const std::byte* block = pool.data() + cache.table.values[0] * cache.layout.page_bytes +
                             cache.layout.blocks[1].offset;
    float scale;
    std::memcpy(&scale, block + cache.layout.scale_offset(0), sizeof(scale));
    std::set<int> mantissas;
    for (size_t i = 0; i < 512; ++i) {
      const auto code = static_cast<uint8_t>(block[i]);
      EXPECT_EQ(code & ((1 << bits) - 1), 0);
      mantissas.insert(code & 7);
      const float x = to_float(cache.latent.values[i]) / scale;
      const float found = to_float(Fp8E4m3{code});
      // Half a step of e4m3, then half a step with `bits` fewer; the top of the range saturates.
      const float step = std::max(std::abs(x), 0x1p-6F) * 0x1p-4F;
      const float bound = bits == 0 ? step : step + step * static_cast<float>(1 << bits);
      EXPECT_LE(std::abs(found - x), bits == 2 && std::abs(x) > 384 ? 64.0F : bound) << x;
    }
    EXPECT_EQ(mantissas.size(), size_t{8} >> bits);
    std::memcpy(&scale, block + cache.layout.scale_offset(0) + sizeof(scale), sizeof(scale));
    const int step = 1 << (2 * bits);
    for (size_t i = 0; i < 64; ++i) {
      const int code = static_cast<int8_t>(block[512 + i]);
      EXPECT_EQ(code % step, 0);
      // Half a step of the integers, then half a step of the coarser ones; 127 becomes 124 or 112.
      const float x = to_float(cache.rope.values[i]) / scale;
      const float bound = bits == 0 ? 0.5F : 0.5F + static_cast<float>(step) / 2;
      const float past = std::abs(x) - static_cast<float>(127 / step * step);
      EXPECT_LE(std::abs(static_cast<float>(code) - x), std::max(bound, past + 0.01F)) << x;
    }
  }
}

// The bytes of the four ops that it is, in the pool and in the query.
TEST_P(KvAppendTest, AppendLatentIsItsParts) {
  Rng rng(23);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Cache cache(rng, c);
    const int64_t n = cache.latent[0];
    const int64_t values = c.rank + c.rope_dim;
    const int64_t q_dim = 3 * c.rank;
    const DeviceArray<int32_t, 1> row(backend(), cache.all_row);
    const DeviceArray<int32_t, 1> position(backend(), cache.all_position);
    const TokenRows tokens{.row = row.constant(), .position = position.constant()};
    auto rows = filled(rng, c.values, HostArray<Bf16, 2>(n, values));
    if (n > 0) {
      rows.view()(0, c.rank) = to_bf16(INFINITY);  // of a key
      rows.view()(n - 1, values - 1) = to_bf16(NAN);
    }
    const DeviceArray<Bf16, 2> kv_a(backend(), rows);
    const auto query = filled(rng, c.values, HostArray<Bf16, 2>(n, q_dim));
    const DeviceArray<Bf16, 2> q_a(backend(), query);
    const DeviceArray<Bf16, 2> q_expected(backend(), query);
    const DeviceArray<Bf16, 1> kv_norm(
        backend(), filled(rng, Values::normal, HostArray<Bf16, 1>(int64_t{c.rank})));
    const DeviceArray<Bf16, 1> q_norm(backend(),
                                      filled(rng, Values::normal, HostArray<Bf16, 1>(q_dim)));
    int64_t n_positions = 1;
    for (const int32_t at : cache.all_position.values) {
      n_positions = std::max(n_positions, at + int64_t{1});
    }
    const HostArray<float, 2> angles(n_positions, int64_t{c.rope_dim / 2});
    const DeviceArray<float, 2> cos(backend(), filled(rng, Values::normal, angles));
    const DeviceArray<float, 2> sin(backend(), filled(rng, Values::normal, angles));
    const PagedKv kv = cache.on(backend());
    const DeviceArray<TokenPlace, 1> places = places_on(backend(), kv, tokens);
    ops::append_latent(backend(), {.kv = kv,
                                   .places = places.constant(),
                                   .positions = position.constant(),
                                   .layer = cache.layer,
                                   .kv_a = kv_a.constant(),
                                   .kv_a_norm = kv_norm.constant(),
                                   .q_a = q_a.view(),
                                   .q_a_norm = q_norm.constant(),
                                   .eps = 1e-6F,
                                   .cos = cos.constant(),
                                   .sin = sin.constant()});
    const std::vector<std::byte> found = cache.pool_of(backend(), kv);

    const PagedKv kv_expected = cache.on(backend());
    const auto latent = DeviceArray<Bf16, 2>::poisoned(backend(), {n, c.rank});
    View<Bf16, 3> key{.data = kv_a.view().data + c.rank,
                      .shape = {n, 1, c.rope_dim},
                      .stride = {values, c.rope_dim, 1}};
    const View<Bf16, 2> wide = kv_a.view();
    ops::rms_norm(backend(), {.out = latent.view(),
                              .x = wide.columns(0, c.rank),
                              .weight = kv_norm.constant(),
                              .eps = 1e-6F});
    ops::rms_norm(backend(), {.out = q_expected.view(),
                              .x = q_expected.constant(),
                              .weight = q_norm.constant(),
                              .eps = 1e-6F});
    ops::rope(
        backend(),
        {.x = key, .positions = position.constant(), .cos = cos.constant(), .sin = sin.constant()});
    ops::kv_append(backend(), {.kv = kv_expected,
                               .places = places.constant(),
                               .layer = cache.layer,
                               .latent = latent.constant(),
                               .rope = wide.columns(c.rank, c.rope_dim)});
    EXPECT_TRUE(found == cache.pool_of(backend(), kv_expected));
    EXPECT_TRUE(same_bits(q_a.download(backend()), q_expected.download(backend())));
  }
}

QUIRE_ON_EVERY_BACKEND(KvAppendTest);

}  // namespace

}  // namespace quire::ops_test
