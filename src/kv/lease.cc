#include "kv/lease.h"

#include "base/check.h"

namespace quire {

std::string_view name(LeaseKind kind) {
  switch (kind) {
    case LeaseKind::request:
      return "request";
    case LeaseKind::index:
      return "index";
    case LeaseKind::step:
      return "step";
    case LeaseKind::copy:
      return "copy";
    case LeaseKind::transfer:
      return "transfer";
  }
  CHECK(false);
  return {};
}

LeaseTable::LeaseTable(int32_t n_pages) : counts_(static_cast<size_t>(n_pages), Counts{}) {}

const LeaseTable::Counts& LeaseTable::counts(PageId page) const {
  CHECK(page.value >= 0 && static_cast<size_t>(page.value) < counts_.size());
  return counts_[static_cast<size_t>(page.value)];
}

void LeaseTable::take(PageId page, LeaseKind kind) {
  CHECK(page.value >= 0 && static_cast<size_t>(page.value) < counts_.size());
  ++counts_[static_cast<size_t>(page.value)][static_cast<size_t>(kind)];
}

bool LeaseTable::drop(PageId page, LeaseKind kind) {
  CHECK(page.value >= 0 && static_cast<size_t>(page.value) < counts_.size());
  int32_t& count = counts_[static_cast<size_t>(page.value)][static_cast<size_t>(kind)];
  if (count == 0) return false;
  --count;
  return true;
}

int32_t LeaseTable::count(PageId page, LeaseKind kind) const {
  return counts(page)[static_cast<size_t>(kind)];
}

int32_t LeaseTable::holders(PageId page) const {
  return count(page, LeaseKind::request) + count(page, LeaseKind::index);
}

int32_t LeaseTable::total(PageId page) const {
  int32_t total = 0;
  for (const int32_t count : counts(page)) total += count;
  return total;
}

bool LeaseTable::is_held_by_index_alone(PageId page) const {
  return count(page, LeaseKind::index) == 1 && total(page) == 1;
}

}  // namespace quire
