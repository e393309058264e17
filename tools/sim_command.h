// What the parts of `quire sim` share.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "tools/commands.h"

namespace quire {

struct SimOptions {
  uint64_t seeds = 0;
  uint64_t first_seed = 0;
  std::string replay;
  std::string save_folder;
  std::string faults;   // `all`, or ids with commas between them; empty: none
  std::string without;  // checks that are switched off, with commas between them
  int32_t retries = 0;
  bool json = false;
};

// Plants each fault `seeds` times. `wrong` when one was missed, or hurt somebody it should not
// have.
Result<ExitCode> run_fault_campaign(const SimOptions& options);

}  // namespace quire
