// Inbox<T>: what other threads tell the one that owns the state, taken all at once.
//
// Not bounded by itself: each producer is. The engine sends at most one event a running request and
// step, the admission threads one a job.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace quire {

template <class T>
class Inbox {
 public:
  // True when the inbox was empty: its owner has to be woken.
  bool push(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    return items_.size() == 1;
  }

  std::vector<T> take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<T> items_;
};

}  // namespace quire
