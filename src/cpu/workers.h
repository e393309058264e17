// Workers: the threads of the CPU backend, and the scratch memory that they compute in.
//
// Which worker computes what never changes a result: kernels give whole output rows to one worker.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/host_memory.h"
#include "tensor/buffer.h"

namespace quire::cpu {

// Memory for the length of one op. Grows until it holds the largest op seen, and is reused then.
class Scratch {
 public:
  explicit Scratch(HostMemory* memory) : memory_(memory) {}

  // Gives up everything that was taken.
  void reset();
  // n values of T, aligned as a Buffer is, contents undefined; valid until reset().
  template <class T>
  T* take(int64_t n) {
    return reinterpret_cast<T*>(take_bytes(n * static_cast<int64_t>(sizeof(T))));
  }

 private:
  std::byte* take_bytes(int64_t bytes);

  HostMemory* memory_;          // outlives this
  std::vector<Buffer> chunks_;  // the last one is being filled
  int64_t used_ = 0;            // bytes of the last chunk
};

// The part [begin, end) of something that one worker does.
struct Share {
  int64_t begin;
  int64_t end;
};

// Share `worker` of [0, n) among `workers`, in units of `unit`.
inline Share share_of(int worker, int workers, int64_t n, int64_t unit = 1) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t end = units * (worker + 1) / workers * unit;
  return {units * worker / workers * unit, end < n ? end : n};
}

class Workers {
 public:
  Workers(int n_threads, HostMemory* memory);

  int count() const { return pool_.workers(); }
  // How many workers are worth waking for this much work: at least 1.
  int count_for(int64_t multiply_adds) const;
  // Runs body(worker, scratch) once on each of the first `n` workers, n <= count(); the scratch is
  // that worker's, reset.
  void each(int n, const std::function<void(int worker, Scratch& scratch)>& body);
  // The calling thread's, for what all workers of an op share. Reset by whoever begins an op.
  Scratch& shared() { return shared_; }

 private:
  ThreadPool pool_;
  std::vector<Scratch> scratch_;  // [count()]
  Scratch shared_;
};

}  // namespace quire::cpu
