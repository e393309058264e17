// RateMeter: events a second over about the last second. Not an average since the start.
#pragma once

#include <cstdint>

namespace quire {

class RateMeter {
 public:
  void add(int64_t now_us, int64_t events) {
    if (now_us - begin_us_ >= kWindowUs) {
      // A window with a gap before it says nothing about now.
      const bool is_recent = now_us - begin_us_ < 2 * kWindowUs;
      rate_ = is_recent ? per_second(now_us) : 0;
      rate_us_ = now_us;
      begin_us_ = now_us;
      events_ = 0;
    }
    events_ += events;
  }

  double per_second_at(int64_t now_us) const {
    return now_us - rate_us_ < 2 * kWindowUs ? rate_ : 0;
  }

 private:
  static constexpr int64_t kWindowUs = 1'000'000;

  double per_second(int64_t now_us) const {
    return static_cast<double>(events_) * 1e6 / static_cast<double>(now_us - begin_us_);
  }

  int64_t begin_us_ = 0;
  int64_t events_ = 0;  // since begin_us_
  int64_t rate_us_ = 0;
  double rate_ = 0;
};

}  // namespace quire
