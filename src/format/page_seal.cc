#include "format/page_seal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"

namespace quire {

PageSeal seal_page(const KvPageLayout& layout, int32_t logical, std::span<const std::byte> page) {
  CHECK(static_cast<int64_t>(page.size()) == layout.page_bytes);
  const uint32_t head[2] = {static_cast<uint32_t>(kKvLayoutVersion),
                            static_cast<uint32_t>(logical)};
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, head, sizeof(head));
  for (const KvBlock& block : layout.blocks) {
    XXH3_128bits_update(&state, page.data() + block.offset, static_cast<size_t>(block.bytes));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {.low = hash.low64, .high = hash.high64};
}

SealSecret seal_secret() {
  static_assert(XXH_SECRET_DEFAULT_SIZE == kSealSecretBytes);
  SealSecret secret;
  XXH3_generateSecret_fromSeed(secret.data(), 0);
  return secret;
}

}  // namespace quire
