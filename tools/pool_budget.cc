#include "tools/pool_budget.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace quire {

Result<int64_t> pages_in_budget(const PoolBudget& budget, int64_t pages_min) {
  CHECK(budget.page_bytes > 0 && pages_min > 0);
  const auto left_alone =
      static_cast<int64_t>((1 - budget.fraction) * static_cast<double>(budget.total_bytes));
  const int64_t room = budget.free_bytes - left_alone;
  int64_t pages = std::max<int64_t>(room / budget.page_bytes - 1, 0);  // less the null page
  if (budget.pages_wanted > 0) pages = std::min(pages, budget.pages_wanted);
  if (pages >= pages_min) return pages;
  return resource_exhausted(format(
      "no room for a KV pool: of %s, weights, activations and working memory leave %s free, and "
      "--mem-fraction-static %.3g keeps %s of that; %s are needed. Lower --chunked-prefill-size, "
      "--max-running-requests or --context-length, or raise --mem-fraction-static",
      human_bytes(budget.total_bytes).c_str(), human_bytes(budget.free_bytes).c_str(),
      budget.fraction, human_bytes(left_alone).c_str(),
      human_bytes((pages_min + 1) * budget.page_bytes).c_str()));
}

}  // namespace quire
