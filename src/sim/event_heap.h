// EventHeap: what is still to happen, soonest first. Time is a number here; nothing waits.
//
// Two events of the same time come out in an order drawn from the seed, not in the order they were
// put in: nobody may rely on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace quire::sim {

enum class EventKind : uint8_t {
  arrive,      // request `subject` comes
  abort,       // its client leaves
  deadline,    // its client gives up
  turn,        // the engine makes a step
  device,      // the device carries out a row
  flush,       // an operator empties the prefix cache
  jump,        // the clock skips ahead
  disturb,     // a rare thing that is allowed to happen, happens
  quarantine,  // an operator takes page `subject` out of circulation ...
  release,     // ... and gives it back
  deliver,     // the server takes what the engine has said to its clients
};

struct Event {
  int64_t at_us = 0;
  EventKind kind = EventKind::turn;
  uint64_t subject = 0;
};

class EventHeap {
 public:
  explicit EventHeap(uint64_t seed) : ties_(seed) {}

  bool is_empty() const { return heap_.empty(); }

  void push(const Event& event) {
    heap_.push_back({event, ties_.next_u64()});
    std::ranges::push_heap(heap_, is_later);
  }

  Event pop() {
    CHECK(!heap_.empty());
    std::ranges::pop_heap(heap_, is_later);
    const Event event = heap_.back().event;
    heap_.pop_back();
    return event;
  }

 private:
  struct Entry {
    Event event;
    uint64_t tie;
  };
  static bool is_later(const Entry& a, const Entry& b) {
    return a.event.at_us != b.event.at_us ? a.event.at_us > b.event.at_us : a.tie > b.tie;
  }

  Rng ties_;
  std::vector<Entry> heap_;
};

}  // namespace quire::sim
