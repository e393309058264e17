#include "format/page_seal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "format/seal_of_blocks.h"

namespace quire {

namespace {

BlockHash hash_block(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.low = hash.low64, .high = hash.high64};
}

// The seal, as hashes of blocks are added to it.
class SealSum {
 public:
  explicit SealSum(int32_t logical) {
    const uint32_t head[2] = {static_cast<uint32_t>(kKvLayoutVersion),
                              static_cast<uint32_t>(logical)};
    XXH3_128bits_reset(&state_);
    XXH3_128bits_update(&state_, head, sizeof(head));
  }
  void add(std::span<const BlockHash> hashes) {
    XXH3_128bits_update(&state_, hashes.data(), hashes.size_bytes());
  }
  PageSeal seal() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {.low = hash.low64, .high = hash.high64};
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

PageSeal seal_page(const KvPageLayout& layout, int32_t logical, std::span<const std::byte> page) {
  CHECK(static_cast<int64_t>(page.size()) == layout.page_bytes);
  SealSum sum(logical);
  for (const KvBlock& block : layout.blocks) {
    const BlockHash hash = hash_block(
        page.subspan(static_cast<size_t>(block.offset), static_cast<size_t>(block.bytes)));
    sum.add({&hash, 1});
  }
  return sum.seal();
}

PageSeal seal_of_blocks(int32_t logical, std::span<const BlockHash> hashes) {
  SealSum sum(logical);
  sum.add(hashes);
  return sum.seal();
}

SealSecret seal_secret() {
  static_assert(XXH_SECRET_DEFAULT_SIZE == kSealSecretBytes);
  SealSecret secret;
  XXH3_generateSecret_fromSeed(secret.data(), 0);
  return secret;
}

}  // namespace quire
