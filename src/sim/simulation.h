// Simulation: one run of the engine, from one case.
//
// The real engine with the queue before it, scheduler, pool and prefix index on one thread over
// SimExecutor, and the server's answers behind it. Everything that happens is an event of one heap:
// requests arrive, clients leave, the engine makes a step, the device carries out a row, the server
// writes to its clients, an operator interferes. After every event the cheap invariants are
// looked at, at intervals all of them (sim/page_checks.h); every output is held against the right
// answer, which is known without any cache; at the end every request has ended once and every page
// has come back. docs/simulation.md has the whole list.
#pragma once

#include "sim/case.h"
#include "sim/report.h"
#include "sim/served_text.h"

namespace quire::sim {

// Runs `wanted` once. The same case gives the same report.
Report run(const Case& wanted, const ServedText& text);

// Runs it twice; two reports that differ are a violation too.
Report run_twice(const Case& wanted, const ServedText& text);

}  // namespace quire::sim
