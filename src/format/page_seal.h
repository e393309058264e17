// The seal of a page: a 128-bit hash of its content (docs/formats/page_tag.md, "Seal").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/kv_page.h"

namespace quire {

struct PageSeal {
  uint64_t low = 0;
  uint64_t high = 0;
  friend constexpr bool operator==(PageSeal, PageSeal) = default;
};

// XXH3-128 over layout version, logical index and the blocks' bytes, padding left out.
// `page` is layout.page_bytes long.
PageSeal seal_page(const KvPageLayout& layout, int32_t logical, std::span<const std::byte> page);

}  // namespace quire
