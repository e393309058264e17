// Generation tags of pages: docs/formats/page_tag.md, as code.
//
// A tag says which life of a physical page a reference belongs to. It changes when the page is
// allocated and again when it is freed, and is never used twice in a run.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace quire {

using PageTag = uint64_t;

// No page ever carries it: what a request that recorded nothing would expect.
inline constexpr PageTag kNoTag = 0;

// A page as a request recorded it when it matched or allocated it.
struct TaggedPage {
  PageId page = kNoPage;
  PageTag tag = kNoTag;
  friend constexpr bool operator==(TaggedPage, TaggedPage) = default;
};

enum class PageState : uint8_t {
  free,         // on the free list; nobody may read or write it
  reserved,     // belongs to a request; nothing written yet
  filling,      // being written by its owner
  sealed,       // full, hashed, immutable; may be shared through the prefix index
  draining,     // given up, but a reader or writer is still in flight
  quarantined,  // failed a check or a timeout; held until an operator or a proof releases it
};

}  // namespace quire
