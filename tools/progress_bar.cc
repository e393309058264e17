#include "tools/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int kBarCells = 30;
constexpr std::chrono::milliseconds kTerminalInterval{100};
constexpr std::chrono::milliseconds kLineInterval{1000};

}  // namespace

ProgressBar::ProgressBar(std::string what, ProgressUnit unit)
    : what_(std::move(what)),
      unit_(unit),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_draw_(start_) {}

void ProgressBar::update(int64_t done, int64_t total) {
  done_ = done;
  total_ = total;
  const Clock::time_point now = Clock::now();
  if (now - last_draw_ < (is_terminal_ ? kTerminalInterval : kLineInterval)) return;
  last_draw_ = now;
  draw(now);
}

std::string ProgressBar::amount(int64_t units) const {
  switch (unit_) {
    case ProgressUnit::bytes:
      return human_bytes(units);
    case ProgressUnit::tokens:
      return format("%lld tokens", static_cast<long long>(units));
  }
  CHECK(false);
  return {};
}

void ProgressBar::draw(Clock::time_point now) {
  const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  std::string figures = format("%3.0f%%  %s of %s  %s/s", share * 100, amount(done_).c_str(),
                               amount(total_).c_str(), amount(static_cast<int64_t>(rate)).c_str());
  if (done_ > 0 && done_ < total_) {
    const double left = seconds * static_cast<double>(total_ - done_) / static_cast<double>(done_);
    figures += format("  %.0f s left", left);
  }
  if (!is_terminal_) {
    std::fprintf(stderr, "%s: %s\n", what_.c_str(), figures.c_str());
    return;
  }
  const int filled = static_cast<int>(share * kBarCells);
  const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                          std::string(static_cast<size_t>(kBarCells - filled), '.');
  // "\x1b[K" clears what a longer line left behind.
  std::fprintf(stderr, "\r%s [%s] %s\x1b[K", what_.c_str(), bar.c_str(), figures.c_str());
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (total_ == 0) return;
  draw(Clock::now());
  if (is_terminal_) std::fputc('\n', stderr);
}

}  // namespace quire
