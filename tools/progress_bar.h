// ProgressBar: how far a long operation is, on standard error: a bar that redraws itself on a
// terminal, else one line a second and one at the end, so that a log stays short.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);

  // Bytes done and in all: shown with the rate and the time that is left. Draws at most ten times a
  // second.
  void update(int64_t done, int64_t total);
  // The last line: how much, and how fast. Nothing when update was never called.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(Clock::time_point now);

  std::string what_;
  bool is_terminal_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace quire
