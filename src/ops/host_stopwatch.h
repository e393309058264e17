// Stopwatch of backends whose work is done when its call returns: the host's steady clock.
#pragma once

#include <chrono>
#include <vector>

#include "base/check.h"
#include "ops/stopwatch.h"

namespace quire {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(int32_t n_marks) : marks_(static_cast<size_t>(n_marks)) {}

  void mark(int32_t index) override { at(index) = Clock::now(); }
  double us_between(int32_t from, int32_t to) override {
    return std::chrono::duration<double, std::micro>(at(to) - at(from)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point& at(int32_t index) {
    CHECK(index >= 0 && static_cast<size_t>(index) < marks_.size());
    return marks_[static_cast<size_t>(index)];
  }

  std::vector<Clock::time_point> marks_;
};

}  // namespace quire
