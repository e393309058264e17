// The seal of a page: a 128-bit hash of its content (docs/formats/page_tag.md, "Seal").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "format/kv_page.h"

namespace quire {

struct PageSeal {
  uint64_t low = 0;
  uint64_t high = 0;
  friend constexpr bool operator==(PageSeal, PageSeal) = default;
};

// A page whose content is to be hashed, with the logical index that the hash binds.
struct SealTarget {
  PageId page;
  int32_t logical = 0;
};

// XXH3-128 over layout version, logical index and the hash of each block, padding left out.
// `page` is layout.page_bytes long.
PageSeal seal_page(const KvPageLayout& layout, int32_t logical, std::span<const std::byte> page);

// What the hash is keyed with: the secret that XXH3 has by default, for who computes it elsewhere.
inline constexpr int kSealSecretBytes = 192;
using SealSecret = std::array<uint8_t, kSealSecretBytes>;
SealSecret seal_secret();

}  // namespace quire
