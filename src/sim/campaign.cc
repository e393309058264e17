#include "sim/campaign.h"

#include "sim/shrink.h"
#include "sim/simulation.h"

namespace quire::sim {

CampaignResult run_seeds(uint64_t first_seed, uint64_t n_seeds, size_t failures_max) {
  CampaignResult result;
  for (uint64_t i = 0; i < n_seeds && result.failed.size() < failures_max; ++i) {
    const Case wanted{.seed = first_seed + i};
    const Report report = run_twice(wanted);
    ++result.seeds;
    result.total.add(report);
    if (report.violation.empty()) continue;
    Case smallest =
        shrink(wanted, [](const Case& tried) { return !run_twice(tried).violation.empty(); });
    std::string violation = run_twice(smallest).violation;
    result.failed.push_back({std::move(smallest), std::move(violation)});
  }
  return result;
}

}  // namespace quire::sim
