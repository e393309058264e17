// Report: what one simulated run did, or many together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/integrity.h"
#include "sim/buggify.h"

namespace quire::sim {

// What a run should meet now and then. A state that no seed reaches is not tested.
enum class Reached : uint8_t {
  answered,         // requests with their whole right answer
  refused_full,     // met a full queue
  refused_unfit,    // could never fit
  aborted_queued,   // before a row of theirs ran
  aborted_running,  // after
  deadline_passed,  // of them, by a deadline
  preemption,
  eviction,
  cached_token,    // of a prompt, found in the prefix index
  row_ahead,       // submitted before its token was known
  row_in_between,  // carried out between two turns of the engine
  flush,
  clock_jump,
  disturbance,  // an early eviction, or a free page moved in the list
  quarantine,   // of a page somebody may hold
  release,      // of a page that had reached it
  page_freed,
  page_reserved,
  page_filling,
  page_sealed,
  page_draining,
  page_quarantined,
  whole_audit,
  equal_hash,     // a page of other tokens had the identity that was looked for
  answer_told,    // an output was written to a client that was there
  output_late,    // it had gone
  ended_by_text,  // a stop string ended an answer before the engine knew
};
inline constexpr size_t kReached = 27;

std::string_view name(Reached state);

// What became of a fault.
struct FaultOutcome {
  bool is_planted = false;
  // The damage was undone before anything met it: a damaged page was evicted, for one.
  bool is_gone = false;
  std::optional<IntegrityCheck> found_by;  // the first check that failed
  uint64_t delay_steps = 0;                // from planting to that
  uint64_t victims = 0;                    // requests that failed, and held what was damaged
  uint64_t collateral = 0;                 // requests that failed and did not
  uint64_t wrong_tokens = 0;               // that were sent
};

struct Report {
  uint64_t hash = 0;    // of every output and the final counters, in order
  uint64_t events = 0;  // taken from the heap
  uint64_t engine_steps = 0;
  uint64_t requests = 0;      // that arrived
  uint64_t false_alarms = 0;  // of the integrity checks, nothing having been damaged
  std::array<uint64_t, kReached> reached{};
  std::array<uint64_t, kPoints> points{};  // how often each rare point was hit
  FaultOutcome fault;
  std::string violation;  // the first thing found wrong; empty when the run was right

  uint64_t& operator[](Reached state) { return reached[static_cast<size_t>(state)]; }
  uint64_t operator[](Reached state) const { return reached[static_cast<size_t>(state)]; }
  // Sums; hash and violation are a run's own.
  void add(const Report& run);
};

}  // namespace quire::sim
