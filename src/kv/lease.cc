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

}  // namespace quire
