// Case: all that decides a simulated run. The same case gives the same run, event by event.
//
// A seed draws everything; the rest only takes away from it (requests, features), which is how a
// failing run is made smaller without becoming another one. Cases that failed once are kept as
// files, one JSON object each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/integrity.h"
#include "sim/fault.h"

namespace quire::sim {

// What a run may have or lack. Each seed has about half of them (swarm testing): a run that does
// everything at once seldom does anything for long.
enum class Feature : uint8_t {
  overlap,            // a step is submitted before the one before it is read
  late_device,        // rows are carried out one by one, some only when somebody waits for them
  prefix_cache,       // off: nothing is shared
  tenants,            // several, with the same tokens
  shared_documents,   // prompts begin alike
  second_turns,       // prompts go on from an earlier answer
  stop_tokens,        // answers end early
  bursts,             // many requests arrive at once
  aborts,             // clients leave
  deadlines,          // clients give up after a time
  flushes,            // an operator empties the prefix cache
  clock_jumps,        // the clock skips ahead
  tiny_pages,         // of one or two tokens
  small_pool,         // hardly more than one request needs
  early_evictions,    // a cached page goes before anybody needs its place
  shuffled_reuse,     // free pages are given out in any order
  quarantines,        // an operator takes a page out, and gives it back
  full_checks,        // every check of integrity
  odd_checks,         // some of them, in any mixture
  sockets,            // answers are written to clients, who read them
  retries,            // a request that a check stops may begin again
  narrow_identities,  // pages of different tokens have equal hashes
  rare_points,        // what is rare happens often (sim/buggify.h)
};
inline constexpr int kFeatures = 23;

std::string_view name(Feature feature);

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr explicit FeatureSet(uint32_t bits) : bits_(bits) {}
  constexpr bool has(Feature feature) const { return (bits_ & bit(feature)) != 0; }
  constexpr void add(Feature feature) { bits_ |= bit(feature); }
  constexpr void remove(Feature feature) { bits_ &= ~bit(feature); }
  constexpr bool is_empty() const { return bits_ == 0; }
  friend constexpr bool operator==(FeatureSet, FeatureSet) = default;

 private:
  static constexpr uint32_t bit(Feature feature) {
    return uint32_t{1} << static_cast<int>(feature);
  }

  uint32_t bits_ = 0;
};

// A fault to be planted, and the checks that are there to find it.
struct PlannedFault {
  Fault fault = Fault::f01;
  IntegrityConfig checks;
  int32_t retries = 0;  // EngineConfig::integrity_retries
};

struct Case {
  uint64_t seed = 0;
  FeatureSet without;                 // features that the seed would have
  std::vector<int32_t> left_out;      // requests that never arrive, by number, ascending
  std::optional<PlannedFault> fault;  // not kept in a file: a case is of what must not happen
};

// The text of a case file, and back. `reason` is for its reader. Errors: invalid_argument.
std::string write_case(const Case& kept, std::string_view reason);
Result<Case> read_case(std::string_view text);

}  // namespace quire::sim
