// ThreadPool: a fixed number of workers over a fixed partition of the work.
//
// parallel_for(n, body) cuts [0, n) into one range a worker, [w * n / workers, (w + 1) * n /
// workers): what is computed together depends on n and the pool's size alone, never on timing.
// Results must not depend on the partition either; kernels keep whole output rows to one range.
// A range whose worker has not come (it sleeps, or the machine runs something else) is run by the
// caller: on a busy machine the pool is about as fast as one thread, not slower.
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

  // Runs body(begin, end) once for every range that is not empty, and returns when all are done.
  // Called by one thread at a time, never from inside a body. Bodies do not throw.
  void parallel_for(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
