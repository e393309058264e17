// Campaign: many seeds, one after the other, and what they came to together.
//
// Each is run twice. A seed that fails is made smaller, and kept.
#pragma once

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

}  // namespace quire::sim
