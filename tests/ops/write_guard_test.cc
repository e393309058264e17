// Guarded stores into the cache: what a row may write is written as without a guard, what it may
// not is left as it was, and counted.
#include <functional>
#include <map>

#include "backends.h"
#include "base/rng.h"
#include "cases.h"
#include "ops/append_latent.h"
#include "ops/kv_append.h"

namespace quire::ops_test {

namespace {

constexpr PageTag kOtherLife = 77;

PageTag tag_of(int64_t page) { return 1000 + static_cast<PageTag>(page); }

// A directory in which about a third of the pages may not be written, each for another reason.
HostArray<PageLife, 1> make_lives(Rng& rng, int64_t n_pages) {
  HostArray<PageLife, 1> lives(n_pages);
  for (int64_t p = 0; p < n_pages; ++p) {
    PageLife& life = lives.values[static_cast<size_t>(p)];
    life = life_of(PageEntry{.tag = tag_of(p), .state = PageState::filling});
    switch (rng.next_below(12)) {
      case 0:
        life.tag = kOtherLife;
        break;
      case 1:
        life.state = static_cast<uint64_t>(PageState::sealed);
        break;
      case 2:
        life.state = static_cast<uint64_t>(PageState::free);
        break;
      case 3:
        life.state = static_cast<uint64_t>(PageState::draining);
        break;
      case 4:
        life.state = static_cast<uint64_t>(PageState::reserved);
        break;
      default:
        break;
    }
  }
  return lives;
}

class WriteGuardTest : public OpTest {
 protected:
  using Append = std::function<void(const PagedKv&, const View<const TokenPlace, 1>&)>;

  // Does `append` with and without a guard, and holds the pools and the words against each other.
  void compare(Rng& rng, Cache& cache, const Append& append) {
    const DeviceArray<int32_t, 1> row_on(backend(), cache.all_row);
    const DeviceArray<int32_t, 1> position_on(backend(), cache.all_position);
    const TokenRows tokens{.row = row_on.constant(), .position = position_on.constant()};
    const PagedKv free = cache.on(backend());
    append(free, places_on(backend(), free, tokens).constant());
    const std::vector<std::byte> expected = cache.pool_of(backend(), free);

    const PagedKv kv = cache.on(backend());
    const HostArray<PageLife, 1> lives = make_lives(rng, kv.n_pages);
    HostArray<PageTag, 2> tags(cache.table[0], cache.table[1]);
    for (size_t i = 0; i < tags.values.size(); ++i) {
      const int32_t page = cache.table.values[i];
      tags.values[i] = page < 0 ? kNoTag : tag_of(page);
    }
    HostArray<PageCheck, 1> rows(cache.table[0]);
    const DeviceArray<PageLife, 1> lives_there(backend(), lives);
    const DeviceArray<PageTag, 2> tags_there(backend(), tags);
    const DeviceArray<PageCheck, 1> rows_there(backend(), rows);
    const WriteGuard guard{
        .tags = tags_there.constant(), .lives = lives_there.constant(), .rows = rows_there.view()};
    append(kv, places_on(backend(), kv, tokens, guard).constant());

    const std::vector<std::byte> found = cache.pool_of(backend(), kv);
    const auto page_bytes = cache.layout.page_bytes;
    for (int64_t p = 0; p < kv.n_pages; ++p) {
      const bool may = is_writable(lives.values[static_cast<size_t>(p)], tag_of(p));
      const std::vector<std::byte>& right = may ? expected : cache.pool;
      EXPECT_TRUE(std::equal(found.begin() + p * page_bytes, found.begin() + (p + 1) * page_bytes,
                             right.begin() + p * page_bytes))
          << "page " << p << (may ? ", which may be written" : ", which may not");
    }
    std::map<int64_t, PageCheck> words;
    for (size_t token = 0; token < cache.all_row.values.size(); ++token) {
      const int64_t row = cache.all_row.values[token];
      const int32_t page = cache.table.values[static_cast<size_t>(
          row * cache.table[1] + cache.all_position.values[token] / kPageTokens)];
      if (is_writable(lives.values[static_cast<size_t>(page)], tag_of(page))) continue;
      ++words[row].dropped;
      words[row].dropped_page = std::max(words[row].dropped_page, page);
    }
    const HostArray<PageCheck, 1> reported = rows_there.download(backend());
    for (int64_t row = 0; row < cache.table[0]; ++row) {
      const PageCheck& word = reported.values[static_cast<size_t>(row)];
      EXPECT_EQ(word.dropped, words[row].dropped) << "row " << row;
      EXPECT_EQ(word.dropped_page, words[row].dropped_page) << "row " << row;
      EXPECT_EQ(word.failed, 0);
    }
  }
};

TEST_P(WriteGuardTest, KvAppendLeavesOutWhatARowMayNotWrite) {
  Rng rng(31);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Cache cache(rng, c);
    const DeviceArray<Bf16, 2> latent(backend(), cache.latent);
    const DeviceArray<Bf16, 2> rope(backend(), cache.rope);
    compare(rng, cache, [&](const PagedKv& kv, const View<const TokenPlace, 1>& places) {
      ops::kv_append(backend(), {.kv = kv,
                                 .places = places,
                                 .layer = cache.layer,
                                 .latent = latent.constant(),
                                 .rope = rope.constant()});
    });
  }
}

TEST_P(WriteGuardTest, AppendLatentLeavesOutWhatARowMayNotWrite) {
  Rng rng(32);
  for (const CacheCase& c : cache_cases()) {
    SCOPED_TRACE(describe(c));
    Cache cache(rng, c);
    const int64_t n = cache.latent[0];
    int64_t n_positions = 1;
    for (const int32_t at : cache.all_position.values) {
      n_positions = std::max(n_positions, at + int64_t{1});
    }
    const DeviceArray<int32_t, 1> position(backend(), cache.all_position);
    const DeviceArray<Bf16, 2> kv_a(
        backend(), filled(rng, c.values, HostArray<Bf16, 2>(n, int64_t{c.rank + c.rope_dim})));
    const DeviceArray<Bf16, 1> norm(
        backend(), filled(rng, Values::normal, HostArray<Bf16, 1>(int64_t{c.rank})));
    const HostArray<float, 2> angles(n_positions, int64_t{c.rope_dim / 2});
    const DeviceArray<float, 2> cos(backend(), filled(rng, Values::normal, angles));
    const DeviceArray<float, 2> sin(backend(), filled(rng, Values::normal, angles));
    compare(rng, cache, [&](const PagedKv& kv, const View<const TokenPlace, 1>& places) {
      ops::append_latent(backend(), {.kv = kv,
                                     .places = places,
                                     .positions = position.constant(),
                                     .layer = cache.layer,
                                     .kv_a = kv_a.constant(),
                                     .kv_a_norm = norm.constant(),
                                     .eps = 1e-6F,
                                     .cos = cos.constant(),
                                     .sin = sin.constant()});
    });
  }
}

QUIRE_ON_EVERY_BACKEND(WriteGuardTest);

}  // namespace

}  // namespace quire::ops_test
