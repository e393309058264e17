#include "ops/page_sealer.h"

namespace quire {

namespace {

class HostPageSealer final : public PageSealer {
 public:
  HostPageSealer(Backend& backend, const PoolPages& pool, Buffer copy)
      : backend_(backend), pool_(pool), copy_(std::move(copy)) {}

  void seal(std::span<const SealTarget> targets, std::span<PageSeal> seals) override {
    CHECK(targets.size() == seals.size());
    for (size_t i = 0; i < targets.size(); ++i) {
      seals[i] = seal_page(*pool_.layout, targets[i].logical, page_bytes(targets[i].page));
    }
  }

 private:
  std::span<const std::byte> page_bytes(PageId page) {
    CHECK(page.value >= 0 && page.value < pool_.n_pages);
    const int64_t bytes = pool_.layout->page_bytes;
    const std::byte* data = pool_.data + page.value * bytes;
    if (backend_.reads_host_memory()) return {data, static_cast<size_t>(bytes)};
    backend_.copy_out_settled(copy_.span(), data);
    return copy_.span();
  }

  Backend& backend_;
  const PoolPages pool_;
  Buffer copy_;  // [page_bytes] of host memory
};

}  // namespace

Result<std::unique_ptr<PageSealer>> make_host_page_sealer(Backend& backend, const PoolPages& pool) {
  CHECK(pool.data != nullptr && pool.n_pages > 0 && pool.layout != nullptr);
  Buffer copy = TRY(allocate_host(backend, pool.layout->page_bytes, "a page on the host"));
  return std::unique_ptr<PageSealer>(
      std::make_unique<HostPageSealer>(backend, pool, std::move(copy)));
}

}  // namespace quire
