// Seals on every backend are those of format/page_seal.h, bit for bit, and any bit that changes
// changes them.
#include "ops/page_sealer.h"

#include <numeric>

#include "arrays.h"
#include "backends.h"
#include "base/rng.h"

namespace quire::ops_test {

namespace {

constexpr int64_t kPages = 9;

// A pool of random bytes, on the host and on the backend.
class Pool {
 public:
  Pool(Backend& backend, const KvPageLayout& layout)
      : backend_(backend), layout_(layout), bytes_(layout.page_bytes * kPages) {
    Rng rng(static_cast<uint64_t>(bytes_.values.size()));
    for (std::byte& byte : bytes_.values) byte = static_cast<std::byte>(rng.next_u64());
    there_ = allocate(backend, static_cast<int64_t>(bytes_.values.size()), "a pool").value();
    backend.copy_in(there_.data(), bytes_.values);
    // A sealer waits for no call.
    std::vector<std::byte> copy(1);
    backend.copy_out(copy, there_.data());
    sealer_ =
        backend.make_page_sealer({.data = there_.data(), .n_pages = kPages, .layout = &layout_})
            .value();
  }

  std::vector<PageSeal> seal(const std::vector<SealTarget>& targets) {
    std::vector<PageSeal> seals(targets.size());
    sealer_->seal(targets, seals);
    return seals;
  }
  PageSeal seal(const SealTarget& target) { return seal(std::vector{target}).front(); }
  PageSeal expected(const SealTarget& target) const {
    return seal_page(layout_, target.logical,
                     std::span(bytes_.values)
                         .subspan(static_cast<size_t>(target.page.value * layout_.page_bytes),
                                  static_cast<size_t>(layout_.page_bytes)));
  }
  // Of a page, on both sides.
  void flip(PageId page, int64_t byte, uint8_t bits) {
    std::byte& there = bytes_.values[static_cast<size_t>(page.value * layout_.page_bytes + byte)];
    there ^= static_cast<std::byte>(bits);
    backend_.copy_in(there_.data() + page.value * layout_.page_bytes + byte, {&there, 1});
    std::vector<std::byte> copy(1);
    backend_.copy_out(copy, there_.data());
  }

 private:
  Backend& backend_;
  const KvPageLayout layout_;
  HostArray<std::byte, 1> bytes_;
  Buffer there_;
  std::unique_ptr<PageSealer> sealer_;
};

// Of one layer and of many; with padding between blocks and without; of lengths that end within a
// block of the hash, and near its ends.
std::vector<KvPageLayout> layouts() {
  std::vector<KvPageLayout> out;
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    for (const int32_t n_layers : {1, 2, 3, 7, 61}) {
      out.push_back(make_mla_layout(format, n_layers, 512, 64));
      out.push_back(make_mla_layout(format, n_layers, 32, 16));
      out.push_back(make_mla_layout(format, n_layers, 24, 2));
    }
  }
  for (const int32_t rank : {8, 10, 12, 14, 16, 20, 22}) {
    out.push_back(make_mla_layout(KvFormat::fp8_e4m3_584, 5, rank, 2));
  }
  return out;
}

using PageSealerTest = OpTest;

TEST_P(PageSealerTest, SealsAreThoseOfTheFormat) {
  for (const KvPageLayout& layout : layouts()) {
    SCOPED_TRACE(describe(layout));
    Pool pool(backend(), layout);
    std::vector<SealTarget> targets;
    for (int32_t p = 0; p < kPages; ++p) {
      targets.push_back({.page = PageId{p}, .logical = 1000 * p});
      targets.push_back({.page = PageId{p}, .logical = 7});
    }
    const std::vector<PageSeal> seals = pool.seal(targets);
    for (size_t i = 0; i < targets.size(); ++i) ASSERT_EQ(seals[i], pool.expected(targets[i]));
  }
}

// More than a backend hashes at once.
TEST_P(PageSealerTest, ManyPagesAreHashedInTurn) {
  Pool pool(backend(), make_mla_layout(KvFormat::fp8_e4m3_584, 2, 24, 2));
  std::vector<SealTarget> targets;
  for (int32_t i = 0; i < 700; ++i) {
    targets.push_back({.page = PageId{i * 5 % int32_t{kPages}}, .logical = i});
  }
  const std::vector<PageSeal> seals = pool.seal(targets);
  for (size_t i = 0; i < targets.size(); ++i) ASSERT_EQ(seals[i], pool.expected(targets[i]));
  EXPECT_TRUE(pool.seal(std::vector<SealTarget>{}).empty());
}

TEST_P(PageSealerTest, EveryByteCounts) {
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    const KvPageLayout layout = make_mla_layout(format, 3, 32, 16);
    Pool pool(backend(), layout);
    const SealTarget target{.page = PageId{4}, .logical = 3};
    const PageSeal before = pool.seal(target);
    Rng rng(3);
    for (const KvBlock& block : layout.blocks) {
      for (int i = 0; i < 20; ++i) {
        const auto at =
            i == 0   ? 0
            : i == 1 ? block.bytes - 1
                     : static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(block.bytes)));
        const auto bits = static_cast<uint8_t>(1U << rng.next_below(8));
        pool.flip(target.page, block.offset + at, bits);
        const PageSeal damaged = pool.seal(target);
        EXPECT_NE(damaged, before) << "byte " << at << " of layer " << block.layer;
        EXPECT_EQ(damaged, pool.expected(target));
        pool.flip(target.page, block.offset + at, bits);
      }
    }
    EXPECT_EQ(pool.seal(target), before);
    EXPECT_NE(pool.seal({.page = target.page, .logical = 4}), before);
  }
}

QUIRE_ON_EVERY_BACKEND(PageSealerTest);

}  // namespace

}  // namespace quire::ops_test
