// ThreadPool: a fixed number of workers over a fixed partition of the work.
//
// parallel_for(n, body) gives worker w the range [w * n / workers, (w + 1) * n / workers): which
// thread computes what depends on n and the pool's size alone, never on timing. Results must not
// depend on the partition either; kernels keep whole output rows to one worker.
// Why our own: work stealing would make the order of sums depend on timing, and OpenMP's runtime
// gives false reports under ThreadSanitizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace quire {

class ThreadPool {
 public:
  // `workers` >= 1, the calling thread included: 1 starts no thread.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const;

  // Runs body(begin, end) on every worker whose range is not empty, and returns when all are done.
  // Called by one thread at a time, never from inside a body. Bodies do not throw.
  void parallel_for(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
