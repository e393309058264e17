// Campaign: many seeds, one after the other, and what they came to together.
//
// Each is run twice. A seed that fails is made smaller, and kept.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/case.h"
#include "sim/report.h"

namespace quire::sim {

// A case that went wrong, as small as it could be made.
struct FailedCase {
  Case smallest;
  std::string violation;
};

struct CampaignResult {
  uint64_t seeds = 0;
  Report total;
  std::vector<FailedCase> failed;
};

// Runs seeds from `first_seed`; ends early after `failures_max` failed ones.
CampaignResult run_seeds(uint64_t first_seed, uint64_t n_seeds, size_t failures_max);

// One fault, planted in run after run.
struct FaultTally {
  uint64_t seeds = 0;
  uint64_t injected = 0;  // runs in which it was planted, and not undone before anything met it
  uint64_t detected = 0;
  uint64_t gone = 0;  // planted, and undone
  uint64_t victims = 0, collateral = 0, wrong_tokens = 0;
  std::array<uint64_t, kIntegrityChecks> first_check{};
  std::vector<uint64_t> delays;  // steps from planting to the first check that failed
  std::vector<FailedCase> failed;

  uint64_t delay_percentile(uint64_t percent) const;
};

// Until it was injected `wanted` times, or after 50 times as many seeds.
FaultTally run_fault(const PlannedFault& fault, uint64_t first_seed, uint64_t wanted);

}  // namespace quire::sim
