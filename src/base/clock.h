// Clock: where time comes from. Passed to whoever needs it, so that a simulation can own time.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic, from an arbitrary origin. Microseconds.
  virtual int64_t now_us() const = 0;
};

// The machine's steady clock.
class SteadyClock final : public Clock {
 public:
  int64_t now_us() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }
};

// Time that moves only when told to; for tests and the simulation.
class ManualClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_; }
  void advance_us(int64_t by) { now_us_ += by; }

 private:
  int64_t now_us_ = 0;
};

}  // namespace quire
