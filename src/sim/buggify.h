// Buggify: rare things that are allowed to happen, made to happen, at points that have a name.
//
// Whether one happens is drawn from a stream of its own; a run has about half of them, each about
// as often as the run has drawn for it. Every time is counted: a point that is never hit tests
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/rng.h"

namespace quire::sim {

enum class Point : uint8_t {
  turn_late,            // the engine's next step comes fifty times later
  turn_at_once,         // or without a pause
  turn_twice,           // two steps in one event
  row_late,             // the device takes fifty times as long for a row
  rows_at_once,         // or none, for all that is open
  outputs_late,         // outputs lie in the server's inbox
  outputs_at_once,      // or are taken at once
  leave_at_once,        // a client leaves before the engine has seen its request
  leave_before_turn,    // between two steps
  leave_mid_step,       // while a step of its request is open
  leave_twice,          // and says so again
  leave_unknown,        // of a request that never was
  evict_before_turn,    // the page that would go next goes early
  forget_before_turn,   // all of them do
  reorder_before_turn,  // another free page is the next to be given out
  jump_before_turn,     // a second passes
  audit_mid_step,       // the audit is made while a step is open
  verify_mid_step,      // every sealed page is verified then
  idle_look,            // an engine without requests looks after its pages
  report_asked,         // an operator asks for the state of the pages
  release_refused,      // or gives back a page that is in use
  flush_refused,        // or empties the cache while requests run
  narrow_identity,      // equal hashes are to be expected
};
inline constexpr size_t kPoints = 23;

std::string_view name(Point point);

class Buggify {
 public:
  explicit Buggify(uint64_t seed);
  // Of a run in which nothing rare is to happen.
  static Buggify none();

  bool fires(Point point) {
    const uint64_t one_in = one_in_[static_cast<size_t>(point)];
    if (one_in == 0 || rng_.next_below(one_in) != 0) return false;
    note(point);
    return true;
  }
  // One that was made to happen elsewhere.
  void note(Point point) { ++hits_[static_cast<size_t>(point)]; }
  uint64_t draw(uint64_t n) { return rng_.next_below(n); }
  const std::array<uint64_t, kPoints>& hits() const { return hits_; }

 private:
  Rng rng_;
  std::array<uint64_t, kPoints> one_in_{};  // 0: never
  std::array<uint64_t, kPoints> hits_{};
};

}  // namespace quire::sim
