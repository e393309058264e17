// The page directory: one entry a physical page (docs/formats/page_tag.md), as code.
//
// What a page is, not what it holds. The host's copy (kv/page_pool.h) is authoritative; an executor
// compares the tags that a step's rows carry with it, or with a mirror of it.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "format/page_seal.h"
#include "format/page_tag.h"

namespace quire {

// The chained hash of a page's tokens and of all tokens before it (page_tag.md, "Identity").
struct PageIdentity {
  uint64_t low = 0;
  uint64_t high = 0;
  friend constexpr bool operator==(PageIdentity, PageIdentity) = default;
};

struct PageEntry {
  PageTag tag = kNoTag;
  PageState state = PageState::free;
  uint8_t zero[3] = {};
  int32_t committed = 0;  // tokens whose rows are valid
  uint64_t owner = 0;     // request id while reserved or filling, else 0
  PageSeal seal;          // zero until sealed
  PageIdentity identity;  // zero until sealed
};
static_assert(sizeof(PageEntry) == 56, "docs/formats/page_tag.md");

// Whether a step may touch the page: it lives the life that the request recorded.
constexpr bool is_current(const PageEntry& entry, PageTag expected) {
  return expected != kNoTag && entry.tag == expected &&
         (entry.state == PageState::reserved || entry.state == PageState::filling ||
          entry.state == PageState::sealed);
}

}  // namespace quire
