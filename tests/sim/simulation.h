// One simulated run of the engine, from one number.
//
// The real engine, scheduler, pool and prefix index on one thread over SimExecutor, with a workload
// drawn from the seed: arrivals, shared prefixes, tenants, second turns, aborts, flushes, tiny
// pools and pages. Every output is held against the right answer, which is known without any cache;
// the audit runs after every step; at the end every request has ended once and every page has come
// back. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace quire::sim {

struct Report {
  uint64_t hash = 0;      // of every output in order, and of the final counters
  uint64_t events = 0;    // engine steps, arrivals and aborts
  uint64_t answered = 0;  // requests that ended with their whole right answer
  uint64_t refused = 0;   // requests that could never fit, or met a full queue
  EngineStats stats;
  Overlap overlap = Overlap::off;
  std::string violation;  // the first thing found wrong; empty when the run was right
};

Report run(uint64_t seed);

}  // namespace quire::sim
