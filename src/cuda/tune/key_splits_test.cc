#include "cuda/tune/key_splits.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace quire::cuda {

namespace {

constexpr int kSms = 132;
constexpr int64_t kQueries = 128;  // of a tile

KeySplitShape chunk(int64_t n_tokens, int64_t n_heads, int64_t n_keys) {
  return {.n_tokens = n_tokens,
          .n_heads = n_heads,
          .n_tiles = div_up(n_tokens, kQueries),
          .key_blocks = div_up(n_keys, int64_t{128}),
          .value_dim = 128};
}

TEST(KeySplits, FewQueriesBehindManyKeysAreSplit) {
  EXPECT_EQ(key_splits(chunk(512, 8, 8192), kSms), 4);
  EXPECT_EQ(key_splits(chunk(256, 8, 8192), kSms), 8);
  EXPECT_EQ(key_splits(chunk(64, 8, 8192), kSms), 16);
  EXPECT_EQ(key_splits(chunk(8192, 8, 8192), kSms), 1);
  EXPECT_EQ(key_splits(chunk(64, 8, 256), kSms), 1);
}

// Whatever is split fits the device at once, and what every step claims.
TEST(KeySplits, SplitsFitTheDeviceAndTheWorkspace) {
  for (const int64_t heads : {1, 4, 8, 16, 64}) {
    for (int64_t n_tokens = 1; n_tokens <= 16384; n_tokens = n_tokens * 3 / 2 + 1) {
      for (const int64_t n_lone : {0, 64, 1024}) {
        for (const int64_t n_keys : {64, 1000, 36000}) {
          KeySplitShape shape = chunk(n_tokens, heads, n_keys);
          shape.n_tokens += n_lone;
          const int64_t splits = key_splits(shape, kSms);
          ASSERT_GE(splits, 1);
          if (splits == 1) continue;
          ASSERT_LE(splits * heads * shape.n_tiles, kSms);
          ASSERT_LE(split_bytes(shape, splits), kSplitBytesMax);
        }
      }
    }
  }
}

}  // namespace

}  // namespace quire::cuda
