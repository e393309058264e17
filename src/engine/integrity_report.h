// IntegrityReport: what an operator is told of an engine's pages. A copy, for any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/integrity_log.h"
#include "kv/page_pool.h"

namespace quire {

struct QuarantinedPage {
  PageId page;
  bool is_held = false;  // by those who had it when it was condemned; then it cannot be released
};

struct IntegrityReport {
  std::array<int32_t, kPageStates> pages{};  // by PageState
  std::vector<QuarantinedPage> quarantined;  // ascending
  std::vector<IntegrityEvent> events;        // the last ones, oldest first
  int64_t now_us = 0;                        // the clock of their moments
};

}  // namespace quire
