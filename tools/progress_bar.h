// ProgressBar: how far a long operation is, on standard error: a bar that redraws itself on a
// terminal, else one line a second and one at the end, so that a log stays short.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

enum class ProgressUnit : uint8_t { bytes, tokens };

class ProgressBar {
 public:
  explicit ProgressBar(std::string what, ProgressUnit unit = ProgressUnit::bytes);

  // Done and in all: shown with the rate and the time that is left. Draws at most ten times a
  // second.
  void update(int64_t done, int64_t total);
  // The last line: how much, and how fast. Nothing when update was never called.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(Clock::time_point now);
  std::string amount(int64_t units) const;

  std::string what_;
  ProgressUnit unit_;
  bool is_terminal_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace quire
