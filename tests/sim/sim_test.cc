#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "base/rng.h"
#include "tests/sim/simulation.h"

namespace quire::sim {
namespace {

// Enough that every path of the engine is met many times, in about half a minute on one core.
constexpr uint64_t kSeeds = 20000;

// What must have happened at least once, or the workload has stopped testing it.
struct Reached {
  uint64_t preemptions = 0, evictions = 0, cached_tokens = 0, aborts = 0, answered = 0, refused = 0;
  uint64_t events = 0, runs = 0;

  void add(const Report& report) {
    preemptions += report.stats.preemptions;
    evictions += report.stats.evicted_pages;
    cached_tokens += report.stats.cached_tokens;
    aborts += report.stats.requests_aborted;
    answered += report.answered;
    refused += report.refused;
    events += report.events;
    ++runs;
  }
  void expect_enough() const {
    EXPECT_GT(preemptions, runs / 4);
    EXPECT_GT(evictions, runs);
    EXPECT_GT(cached_tokens, runs);
    EXPECT_GT(aborts, runs / 10);
    EXPECT_GT(answered, 3 * runs);
    EXPECT_GT(refused, runs);
  }
};

// Runs a seed twice: right both times, and the same.
Report run_twice(uint64_t seed) {
  const Report first = run(seed);
  EXPECT_EQ(first.violation, "") << "seed " << seed;
  const Report second = run(seed);
  EXPECT_EQ(first.hash, second.hash) << "seed " << seed << " gives two different runs";
  return first;
}

TEST(Simulation, EverySeedAnswersRight) {
  Reached one_at_a_time;
  Reached overlapped;
  for (uint64_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    const Report report = run_twice(seed);
    (report.overlap == Overlap::on ? overlapped : one_at_a_time).add(report);
  }
  if (HasFailure()) return;
  for (const Reached& reached : {one_at_a_time, overlapped}) {
    EXPECT_GT(reached.runs, kSeeds / 3);
    reached.expect_enough();
    std::printf("%llu seeds, %llu events, %llu answers, %llu preemptions, %llu evictions\n",
                static_cast<unsigned long long>(reached.runs),
                static_cast<unsigned long long>(reached.events),
                static_cast<unsigned long long>(reached.answered),
                static_cast<unsigned long long>(reached.preemptions),
                static_cast<unsigned long long>(reached.evictions));
  }
}

// A seed that nobody has seen; printed, so that a failure can be run again.
TEST(Simulation, AFreshSeedAnswersRight) {
  uint64_t seed = 0;
  ASSERT_TRUE(fill_secure_random(std::as_writable_bytes(std::span(&seed, 1))).ok());
  std::printf("fresh seed %llu\n", static_cast<unsigned long long>(seed));
  run_twice(seed);
}

// The checker itself can see: a model whose reads are changed gives other answers.
TEST(Simulation, DifferentSeedsDiffer) { EXPECT_NE(run(1).hash, run(2).hash); }

}  // namespace
}  // namespace quire::sim
