// PageTable: which pages each running request holds, in logical order. One row a slot.
//
// The engine's record, not the device's table: a step's plan carries the rows it needs
// (format/step.h), each page with the tag that was recorded when it was matched or allocated.
// Counts no leases and checks no states. All memory is allocated by the constructor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "format/page_tag.h"

namespace quire {

namespace sim {
class PageSurgeon;  // src/sim: looks at and disturbs what is private, on purpose
}

class PageTable {
 public:
  PageTable(int32_t n_slots, int32_t pages_max)
      : pages_max_(pages_max),
        pages_(static_cast<size_t>(n_slots) * static_cast<size_t>(pages_max)),
        sizes_(static_cast<size_t>(n_slots), 0) {
    CHECK(n_slots > 0 && pages_max > 0);
  }

  std::span<const TaggedPage> row(SlotId slot) const {
    return {pages_.data() + begin(slot), static_cast<size_t>(size(slot))};
  }
  int32_t size(SlotId slot) const { return sizes_[static_cast<size_t>(slot.value)]; }

  void append(SlotId slot, TaggedPage page) {
    int32_t& size = sizes_[static_cast<size_t>(slot.value)];
    CHECK(size < pages_max_);
    pages_[begin(slot) + static_cast<size_t>(size++)] = page;
  }
  // Keeps the first `n` pages.
  void truncate(SlotId slot, int32_t n) {
    CHECK(n >= 0 && n <= size(slot));
    sizes_[static_cast<size_t>(slot.value)] = n;
  }
  void clear(SlotId slot) { sizes_[static_cast<size_t>(slot.value)] = 0; }

 private:
  friend class sim::PageSurgeon;

  size_t begin(SlotId slot) const {
    CHECK(slot.value >= 0 && static_cast<size_t>(slot.value) < sizes_.size());
    return static_cast<size_t>(slot.value) * static_cast<size_t>(pages_max_);
  }

  const int32_t pages_max_;
  std::vector<TaggedPage> pages_;  // [n_slots, pages_max]
  std::vector<int32_t> sizes_;     // [n_slots]
};

}  // namespace quire
