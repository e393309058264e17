// Stopwatch: when a backend's work was done, on the backend's own clock.
//
// For benches: on a device, the host's clock says when work was submitted, not when it ran. A mark
// takes its place among the ops around it. Not for metrics of a running server.
#pragma once

#include <cstdint>

namespace quire {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Notes the moment at which all work submitted before is done. `index` is below the number of
  // marks the stopwatch was made for; marking again forgets the earlier moment.
  virtual void mark(int32_t index) = 0;
  // Microseconds from one mark to a later one. Waits for both.
  virtual double us_between(int32_t from, int32_t to) = 0;
};

}  // namespace quire
