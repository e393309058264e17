// StartupReport: what each step of a start took, in time and in the backend's memory, measured by
// what was free before and after it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json_fwd.h"
#include "ops/backend.h"

namespace quire {

class StartupReport {
 public:
  // Ends the step that began when the last one ended. Before there is a backend, null. `bytes_read`
  // is what the step moved, for its rate; 0 when that says nothing.
  void end_step(std::string name, Backend* backend, int64_t bytes_read = 0);

  // What an operator should know of the start, though it went on.
  void warn(std::string message) { warnings_.push_back(std::move(message)); }
  const std::vector<std::string>& warnings() const { return warnings_; }

  double seconds() const;
  // One line of time and, on a device that counts its memory, one of memory.
  std::vector<std::string> lines() const;
  Json json() const;

 private:
  struct Step {
    std::string name;
    double seconds = 0;
    int64_t bytes_read = 0;
    int64_t bytes_taken = 0;  // of the backend's memory
  };

  SteadyClock clock_;
  int64_t begin_us_ = clock_.now_us();
  int64_t last_us_ = begin_us_;
  std::vector<Step> steps_;
  std::vector<std::string> warnings_;
  bool counts_memory_ = false;
  MemoryInfo memory_;  // after the last step
};

}  // namespace quire
