// BoundedQueue<T>: how other threads reach the one that owns the state. Full is an answer.
//
// Any number of producers and consumers. After close(), pushes are refused and pops drain what is
// left, then say so.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"

namespace quire {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) { CHECK(capacity > 0); }

  // False when full or closed; `value` is untouched then.
  bool try_push(T& value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }
  bool try_push(T&& value) { return try_push(value); }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take();
  }

  // Waits until there is an item, the queue is closed, or `timeout` has passed.
  std::optional<T> pop_for(std::chrono::microseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> out(std::move(items_.front()));
    items_.pop_front();
    return out;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace quire
