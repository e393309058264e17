// What fills memory rather than computing on it: random values and uploads, on every backend.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "arrays.h"
#include "backends.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "ops/random_fill.h"

namespace quire::ops_test {

namespace {

using MemoryTest = OpTest;

std::vector<std::byte> download(Backend& backend, const Buffer& buffer) {
  std::vector<std::byte> out(static_cast<size_t>(buffer.bytes()));
  backend.copy_out(out, buffer.data());
  return out;
}

std::vector<std::byte> made_on(Backend& backend, const RandomArray& array) {
  const Buffer out = allocate(backend, array.bytes(), "random values").value();
  backend.fill(out.data(), out.bytes(), std::byte{0xff});
  ops::random_fill(backend, {.out = out.data(), .values = array});
  return download(backend, out);
}

std::vector<std::byte> made_by_rows(const RandomArray& array) {
  std::vector<std::byte> out(static_cast<size_t>(array.bytes()));
  for (int64_t row = 0; row < array.n_rows; ++row) {
    random_row(array, row, out.data() + row * array.row_bytes());
  }
  return out;
}

constexpr RandomKind kKinds[] = {RandomKind::normal_bf16, RandomKind::uniform_bf16,
                                 RandomKind::uniform_f32, RandomKind::e4m3, RandomKind::nibbles};

TEST_P(MemoryTest, RandomValuesAreTheSameBitsEverywhere) {
  for (const RandomKind kind : kKinds) {
    for (const int64_t columns : {1, 37, 64, 1000}) {
      const RandomArray array{.kind = kind,
                              .n_rows = 33,
                              .n_columns = columns,
                              .first = columns == 64 ? 8 : 3,
                              .stride = columns + 8,
                              .seed = 5,
                              .scale = 0.5F};
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << columns);
      EXPECT_EQ(made_on(backend(), array), made_by_rows(array));
    }
  }
}

TEST_P(MemoryTest, ASliceOfRandomValuesIsASliceOfTheWhole) {
  for (const RandomKind kind : kKinds) {
    const RandomArray whole{.kind = kind, .n_rows = 16, .n_columns = 64, .stride = 64, .seed = 9};
    RandomArray slice = whole;
    slice.n_rows = 5;
    slice.n_columns = 24;
    slice.first = 3 * 64 + 16;
    const std::vector<std::byte> all = made_by_rows(whole);
    const std::vector<std::byte> found = made_on(backend(), slice);
    for (int64_t row = 0; row < slice.n_rows; ++row) {
      const int64_t at = ((3 + row) * 64 + 16) * element_bytes(kind);
      EXPECT_EQ(std::memcmp(found.data() + row * slice.row_bytes(), all.data() + at,
                            static_cast<size_t>(slice.row_bytes())),
                0);
    }
  }
}

// A sample mean is within 5 standard errors, a deviation within 2 %.
TEST_P(MemoryTest, RandomValuesHaveTheirMoments) {
  constexpr int64_t kCount = 1 << 16;
  const auto expect_moments = [&](RandomKind kind, float scale, double mean, double deviation,
                                  const auto& value) {
    const std::vector<std::byte> bytes = made_on(backend(), {.kind = kind,
                                                             .n_rows = 1,
                                                             .n_columns = kCount,
                                                             .stride = kCount,
                                                             .seed = 77,
                                                             .scale = scale});
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double x = value(bytes, static_cast<size_t>(i));
      sum += x;
      squares += (x - mean) * (x - mean);
    }
    EXPECT_NEAR(sum / kCount, mean, 5 * deviation / std::sqrt(kCount)) << static_cast<int>(kind);
    EXPECT_NEAR(std::sqrt(squares / kCount), deviation, 0.02 * deviation);
  };
  const auto bf16 = [](const auto& bytes, size_t i) {
    return to_float(load_le<Bf16>(bytes, 2 * i));
  };
  expect_moments(RandomKind::normal_bf16, 0.25F, 0, 0.25, bf16);
  expect_moments(RandomKind::uniform_bf16, 2.0F, 2 * (0.75 + 255.0 / 1024), 1 / std::sqrt(12),
                 bf16);
  expect_moments(RandomKind::e4m3, 1.0F, 0, kE4m3Deviation,
                 [](const auto& bytes, size_t i) { return to_float(load_le<Fp8E4m3>(bytes, i)); });
  expect_moments(RandomKind::nibbles, 1.0F, 0, kNibbleDeviation, [](const auto& bytes, size_t i) {
    return std::to_integer<int>(bytes[i] & std::byte{15}) - 8;
  });
}

TEST_P(MemoryTest, AnUploadGathersRows) {
  constexpr int64_t kFromBytes = int64_t{12} << 20;
  std::vector<std::byte> from(kFromBytes);
  Rng rng(3);
  for (size_t i = 0; i + 8 <= from.size(); i += 8) store_le(std::span(from), i, rng.next_u64());
  const Buffer to = allocate(backend(), 3 * kFromBytes, "uploaded bytes").value();
  // Strided rows, a whole longer than any slot, pieces that touch or nearly do, and a short one.
  std::vector<UploadPiece> pieces;
  int64_t at = 0;
  const auto add = [&](int64_t offset, int64_t n_rows, int64_t row_bytes, int64_t stride) {
    pieces.push_back({to.data() + at, from.data() + offset, n_rows, row_bytes, stride});
    at = round_up(at + n_rows * row_bytes, kBufferAlignment);
  };
  add(16, 7000, 128, 1024);
  add(5, 1, kFromBytes - 5, kFromBytes);
  for (int64_t i = 0; i < 100; ++i) add(i * 999, 1 + i, 48, 48);
  at += 4096;
  add(7, 3, 1, 2);
  int64_t reported = 0;
  int64_t bytes = 0;
  for (const UploadPiece& piece : pieces) bytes += piece.bytes();
  const std::unique_ptr<Upload> upload = backend().start_upload(3);
  for (int run = 0; run < 2; ++run) {
    backend().fill(to.data(), to.bytes(), std::byte{0xff});
    upload->copy(pieces, [&](int64_t n) { reported += n; });
    const std::vector<std::byte> found = download(backend(), to);
    for (const UploadPiece& piece : pieces) {
      for (int64_t row = 0; row < piece.n_rows; ++row) {
        ASSERT_EQ(
            std::memcmp(found.data() + (piece.to - to.data()) + row * piece.row_bytes,
                        piece.from + row * piece.stride, static_cast<size_t>(piece.row_bytes)),
            0)
            << "row " << row << " of " << piece.n_rows;
      }
    }
  }
  EXPECT_EQ(reported, 2 * bytes);
}

TEST_P(MemoryTest, MemoryIsCounted) {
  const MemoryInfo info = backend().memory_info();
  EXPECT_GT(info.free, 0);
  EXPECT_GE(info.total, info.free);
}

QUIRE_ON_EVERY_BACKEND(MemoryTest);

}  // namespace

}  // namespace quire::ops_test
