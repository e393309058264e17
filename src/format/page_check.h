// The page directory as a device keeps it, and what the checks of a row's pages found there
// (docs/formats/page_tag.md, "Mirror"; docs/formats/step.md, "Results").
//
// Only bytes and the two rules of who may read and who may write; ops/check_pages.h compares.
#pragma once

#include <cstdint>

#include "format/page_directory.h"

namespace quire {

// A page's entry, as the mirror has it.
struct PageLife {
  PageTag tag = kNoTag;
  uint64_t state = 0;  // PageState
  friend constexpr bool operator==(PageLife, PageLife) = default;
};
static_assert(sizeof(PageLife) == 16);

constexpr PageLife life_of(const PageEntry& entry) {
  return {.tag = entry.tag, .state = static_cast<uint64_t>(entry.state)};
}

// As is_current of an entry: a step may read the page.
constexpr bool is_current(const PageLife& life, PageTag expected) {
  return expected != kNoTag && life.tag == expected &&
         (life.state == static_cast<uint64_t>(PageState::reserved) ||
          life.state == static_cast<uint64_t>(PageState::filling) ||
          life.state == static_cast<uint64_t>(PageState::sealed));
}

// A step may store into it: what is sealed is not written any more.
constexpr bool is_writable(const PageLife& life, PageTag expected) {
  return is_current(life, expected) && life.state != static_cast<uint64_t>(PageState::sealed);
}

// An entry of a page table without a tag: it names no page, or the null page.
constexpr bool is_unused(int32_t page, PageTag expected) {
  return expected == kNoTag && (page == -1 || page == 0);
}

// What the checks of a row found in one step.
struct PageCheck {
  uint64_t step = 0;          // of the counter that the device keeps: when this was written
  uint64_t nonce = 0;         // of the row, as it arrived
  int32_t compared = 0;       // entries with a tag, each time they were compared
  int32_t failed = 0;         // entries, each time they were not what the row recorded
  int32_t first = -1;         // of these, the first: its place in the row, ...
  int32_t page = -1;          // ... the page that the table named there ...
  uint64_t found_tag = 0;     // ... and the tag that the mirror had; 0 of a page outside the pool
  int32_t dropped = 0;        // tokens that were not stored where they belong
  int32_t dropped_page = -1;  // the largest page that one of them was for
};
static_assert(sizeof(PageCheck) == 48);

// A change of the mirror, as words of a step's inputs (format/step_inputs.h).
struct PageChange {
  int32_t page = 0;
  int32_t state = 0;
  uint32_t tag_low = 0;
  uint32_t tag_high = 0;
};
static_assert(sizeof(PageChange) == 16);
inline constexpr int64_t kPageChangeWords = sizeof(PageChange) / sizeof(int32_t);

constexpr PageChange change_of(int32_t page, const PageEntry& entry) {
  return {.page = page,
          .state = static_cast<int32_t>(entry.state),
          .tag_low = static_cast<uint32_t>(entry.tag),
          .tag_high = static_cast<uint32_t>(entry.tag >> 32)};
}
// The change that begins at these words.
constexpr PageChange change_in(const int32_t* words) {
  return {.page = words[0],
          .state = words[1],
          .tag_low = static_cast<uint32_t>(words[2]),
          .tag_high = static_cast<uint32_t>(words[3])};
}
constexpr PageLife life_of(const PageChange& change) {
  return {.tag = uint64_t{change.tag_high} << 32 | change.tag_low,
          .state = static_cast<uint64_t>(change.state)};
}

}  // namespace quire
