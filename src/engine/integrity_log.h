// IntegrityLog: what the checks of an engine looked at and found, and what was done about it.
//
// Counts by check, one log line an event, and the last events for an operator. It decides nothing.
// Used by the engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "engine/integrity.h"

namespace quire {

enum class IntegrityEventKind : uint8_t {
  found,        // a check failed
  stopped,      // a request ended because of it
  retried,      // a request begins again from its prompt instead
  quarantined,  // a page was taken out of circulation
  released,     // an operator gave one back
};

std::string_view name(IntegrityEventKind kind);

struct IntegrityEvent {
  IntegrityEventKind kind = IntegrityEventKind::found;
  std::optional<IntegrityCheck> check;  // of what was found
  PageId page = kNoPage;                // when one page is meant
  RequestId request{0};                 // when one request is; ids begin at 1
  std::string what;
  uint64_t number = 0;  // of all events, from 1; set by the log, as what is below
  int64_t at_us = 0;    // of the engine's clock
  uint64_t step = 0;    // the last that was submitted
};

class IntegrityLog {
 public:
  // Events that are kept: more than one fault leads to.
  static constexpr size_t kKept = 64;

  // `clock` and `log` outlive this.
  IntegrityLog(const Clock& clock, Log& log) : clock_(clock), log_(log) {}

  void begin_step(uint64_t step) { step_ = step; }
  // So many comparisons of a check were made, whatever came of them.
  void looked(IntegrityCheck check, uint64_t n = 1) { looked_.add(check, n); }
  // An event; one that was `found` counts as a failure of its check.
  void add(IntegrityEvent event);
  void found(IntegrityCheck check, std::string what, PageId page = kNoPage,
             RequestId request = RequestId{0});

  const IntegrityCounts& looked() const { return looked_; }
  const IntegrityCounts& found() const { return found_; }
  // Oldest first.
  std::vector<IntegrityEvent> last() const;

 private:
  const Clock& clock_;
  Log& log_;
  IntegrityCounts looked_;
  IntegrityCounts found_;
  uint64_t step_ = 0;
  uint64_t n_events_ = 0;
  std::array<IntegrityEvent, kKept> events_;  // event n is at n % kKept
};

}  // namespace quire
