// PoolBudget: how many pages a KV pool gets of a device's memory. Pure arithmetic on what was
// measured when everything else was in place.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace quire {

// The share of a device that one server takes. The rest is for recorded steps, the driver, and
// whoever else looks at the device.
inline constexpr double kMemFraction = 0.95;

struct PoolBudget {
  int64_t total_bytes = 0;         // of the device
  int64_t free_bytes = 0;          // after weights, activations and working memory
  double fraction = kMemFraction;  // of total_bytes, for all of it: --mem-fraction-static
  int64_t page_bytes = 0;
  int64_t pages_wanted = 0;  // at most; 0: as many as there is room for
};

// Pages, the null page not counted. Errors: resource_exhausted, saying what to lower, when there is
// no room for `pages_min`.
Result<int64_t> pages_in_budget(const PoolBudget& budget, int64_t pages_min);

}  // namespace quire
