#include "sim/campaign.h"

#include <algorithm>

#include "sim/shrink.h"
#include "sim/simulation.h"

namespace quire::sim {

CampaignResult run_seeds(uint64_t first_seed, uint64_t n_seeds, size_t failures_max) {
  const ServedText text;
  const auto run_case = [&text](const Case& wanted) { return run_twice(wanted, text); };
  CampaignResult result;
  for (uint64_t i = 0; i < n_seeds && result.failed.size() < failures_max; ++i) {
    const Case wanted{.seed = first_seed + i};
    const Report report = run_case(wanted);
    ++result.seeds;
    result.total.add(report);
    if (report.violation.empty()) continue;
    Case smallest =
        shrink(wanted, [&](const Case& tried) { return !run_case(tried).violation.empty(); });
    std::string violation = run_case(smallest).violation;
    result.failed.push_back({std::move(smallest), std::move(violation)});
  }
  return result;
}

uint64_t FaultTally::delay_percentile(uint64_t percent) const {
  if (delays.empty()) return 0;
  std::vector<uint64_t> sorted = delays;
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) * percent / 100];
}

FaultTally run_fault(const PlannedFault& fault, uint64_t first_seed, uint64_t wanted) {
  constexpr uint64_t kSeedsPerInjection = 50;
  const ServedText text;
  FaultTally tally;
  while (tally.injected < wanted && tally.seeds < wanted * kSeedsPerInjection) {
    const Case planted{.seed = first_seed + tally.seeds++, .fault = fault};
    const Report report = run_twice(planted, text);
    const FaultOutcome& outcome = report.fault;
    if (!report.violation.empty()) tally.failed.push_back({planted, report.violation});
    if (outcome.collateral > 0 && report.violation.empty()) {
      tally.failed.push_back({planted, "a request failed that held nothing of what was damaged"});
    }
    tally.gone += uint64_t{outcome.is_gone};
    tally.victims += outcome.victims;
    tally.collateral += outcome.collateral;
    tally.wrong_tokens += outcome.wrong_tokens;
    // What nothing met harmed nobody; wrong tokens are harm, whoever noticed.
    if (!outcome.is_planted || (outcome.is_gone && outcome.wrong_tokens == 0)) continue;
    ++tally.injected;
    if (!outcome.found_by) continue;
    ++tally.detected;
    ++tally.first_check[static_cast<size_t>(*outcome.found_by)];
    tally.delays.push_back(outcome.delay_steps);
  }
  return tally;
}

}  // namespace quire::sim
