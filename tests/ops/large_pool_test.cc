// A pool whose offsets pass 2^31 and 2^32, in bytes and in elements: what is written and read there
// is what a small pool gives, bit for bit, and nothing else is touched.
//
// On devices only: the pool is 9 GB.
#include <algorithm>
#include <numeric>

#include "backends.h"
#include "base/bytes.h"
#include "cases.h"
#include "ops/kv_append.h"
#include "ops/mla_attention.h"

namespace quire::ops_test {

namespace {

using LargePoolTest = OpTest;

constexpr int32_t kLayers = 61;
constexpr int32_t kRank = 512;
constexpr int32_t kRope = 64;
constexpr int64_t kHeads = 8;
constexpr int64_t kPoolBytes = 9'200'000'000;  // over 2^33, which is 2^32 elements in bf16

struct Sequences {
  std::vector<int32_t> lengths{200, 64, 130, 1};
  HostArray<int32_t, 1> row, position;            // of every token
  HostArray<int32_t, 1> last_row, last_position;  // of each sequence's last
  HostArray<Bf16, 2> latent, rope;
  HostArray<Bf16, 3> q_latent, q_rope;

  Sequences() {
    Rng rng(41);
    for (int32_t r = 0; r < static_cast<int32_t>(lengths.size()); ++r) {
      for (int32_t i = 0; i < lengths[static_cast<size_t>(r)]; ++i) {
        row.values.push_back(r);
        position.values.push_back(i);
      }
      last_row.values.push_back(r);
      last_position.values.push_back(lengths[static_cast<size_t>(r)] - 1);
    }
    const auto n = static_cast<int64_t>(row.values.size());
    const auto n_rows = static_cast<int64_t>(lengths.size());
    row.shape = position.shape = {n};
    last_row.shape = last_position.shape = {n_rows};
    latent = filled(rng, Values::normal, HostArray<Bf16, 2>(n, kRank));
    rope = filled(rng, Values::normal, HostArray<Bf16, 2>(n, kRope));
    q_latent = filled(rng, Values::normal, HostArray<Bf16, 3>(n_rows, kHeads, kRank));
    q_rope = filled(rng, Values::normal, HostArray<Bf16, 3>(n_rows, kHeads, kRope));
  }
  int64_t n_pages() const {
    int64_t n = 0;
    for (const int32_t length : lengths) n += div_up(length, kPageTokens);
    return n;
  }
};

// The sequences in a pool, on pages that the caller names.
class Pool {
 public:
  Pool(Backend& backend, const KvPageLayout& layout, int64_t n_pages)
      : backend_(backend), layout_(layout), n_pages_(n_pages) {
    Result<Buffer> made = allocate(backend, n_pages * layout.page_bytes, "a test pool");
    if (!made.ok()) return;
    memory_ = std::move(made).value();
    backend.fill(memory_.data(), memory_.bytes(), std::byte{0xff});
  }
  bool is_there() const { return memory_.bytes() > 0; }

  // Appends the sequences at `layer`, and attends with the last token of each.
  HostArray<Bf16, 3> run(const Sequences& s, const std::vector<int32_t>& pages, int32_t layer) {
    HostArray<int32_t, 2> table(int64_t{s.last_row[0]}, int64_t{4});
    std::ranges::fill(table.values, -1);
    size_t next = 0;
    for (size_t r = 0; r < s.lengths.size(); ++r) {
      for (int64_t k = 0; k < div_up(s.lengths[r], kPageTokens); ++k) {
        table.view()(static_cast<int64_t>(r), k) = pages[next++];
      }
    }
    const DeviceArray<int32_t, 2> table_on(backend_, table);
    const DeviceArray<int32_t, 1> row(backend_, s.row), position(backend_, s.position);
    const DeviceArray<int32_t, 1> last_row(backend_, s.last_row);
    const DeviceArray<int32_t, 1> last_position(backend_, s.last_position);
    const DeviceArray<Bf16, 2> latent(backend_, s.latent), rope(backend_, s.rope);
    const DeviceArray<Bf16, 3> q_latent(backend_, s.q_latent), q_rope(backend_, s.q_rope);
    const PagedKv kv{.pool = memory_.data(),
                     .n_pages = n_pages_,
                     .layout = &layout_,
                     .table = table_on.constant()};
    const DeviceArray<TokenPlace, 1> places =
        places_on(backend_, kv, {.row = row.constant(), .position = position.constant()});
    ops::kv_append(backend_, {.kv = kv,
                              .places = places.constant(),
                              .layer = layer,
                              .latent = latent.constant(),
                              .rope = rope.constant()});
    const auto out = DeviceArray<Bf16, 3>::poisoned(backend_, s.q_latent.shape);
    ops::mla_attention(
        backend_, {.out = out.view(),
                   .q_latent = q_latent.constant(),
                   .q_rope = q_rope.constant(),
                   .kv = kv,
                   .tokens = {.row = last_row.constant(), .position = last_position.constant()},
                   .layer = layer,
                   .scale = 0.05F});
    return out.download(backend_);
  }

  std::vector<std::byte> page(int32_t page) const {
    std::vector<std::byte> out(static_cast<size_t>(layout_.page_bytes));
    backend_.copy_out(out, memory_.data() + page * layout_.page_bytes);
    return out;
  }

 private:
  Backend& backend_;
  const KvPageLayout& layout_;
  const int64_t n_pages_;
  Buffer memory_;
};

TEST_P(LargePoolTest, PagesPast2To32AreLikeAnyOther) {
  if (backend().reads_host_memory()) GTEST_SKIP() << "a pool of 9 GB is for a device";
  const Sequences sequences;
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    SCOPED_TRACE(name(format));
    const KvPageLayout layout = make_mla_layout(format, kLayers, kRank, kRope);
    const int64_t n_large = kPoolBytes / layout.page_bytes;
    // Pages that hold byte 2^31, 2^32 and 2^33 (element 2^32 in bf16), and the last ones.
    std::vector<int32_t> places;
    for (const int shift : {31, 32, 33}) {
      places.push_back(static_cast<int32_t>((int64_t{1} << shift) / layout.page_bytes));
    }
    for (int64_t page = n_large - 1; static_cast<int64_t>(places.size()) < sequences.n_pages();
         --page) {
      places.push_back(static_cast<int32_t>(page));
    }
    std::vector<int32_t> small_places(places.size());
    std::iota(small_places.begin(), small_places.end(), 1);

    Pool small(backend(), layout, sequences.n_pages() + 1);
    Pool large(backend(), layout, n_large);
    if (!large.is_there()) GTEST_SKIP() << "no room for a pool of 9 GB";
    for (const int32_t layer : {0, kLayers - 1}) {
      const HostArray<Bf16, 3> expected = small.run(sequences, small_places, layer);
      const HostArray<Bf16, 3> found = large.run(sequences, places, layer);
      EXPECT_TRUE(same_bits(found, expected));
    }
    const std::vector<std::byte> untouched(static_cast<size_t>(layout.page_bytes), std::byte{0xff});
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_TRUE(large.page(places[i]) == small.page(small_places[i]));
      // Where the page would lie if its offset were cut to 32 bits, and its neighbours.
      const int64_t cut = (places[i] * layout.page_bytes) & 0xffffffff;
      for (const int64_t page : {cut / layout.page_bytes, cut / layout.page_bytes + 1}) {
        if (std::ranges::count(places, page) > 0) continue;
        EXPECT_TRUE(large.page(static_cast<int32_t>(page)) == untouched);
      }
    }
  }
}

QUIRE_ON_EVERY_BACKEND(LargePoolTest);

}  // namespace

}  // namespace quire::ops_test
