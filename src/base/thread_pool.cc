#include "base/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace quire {

namespace {

// Decode steps of a small model issue work every few microseconds: workers spin this often before
// they sleep. Measured on a 2-core machine; a futex wake costs more than this.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct ThreadPool::State {
  int workers = 1;
  const std::function<void(int64_t, int64_t)>* body = nullptr;
  int64_t n = 0;
  std::atomic<uint64_t> generation{0};         // one more for each parallel_for, and at the end
  std::atomic<int> pending{0};                 // ranges of this generation that are not finished
  std::vector<std::atomic<uint64_t>> claimed;  // [workers] the last generation whose range is taken
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::jthread> threads;

  void run_share(int worker) const {
    const int64_t begin = n * worker / workers;
    const int64_t end = n * (worker + 1) / workers;
    if (begin < end) (*body)(begin, end);
  }

  // Runs a worker's range of generation `now`, unless somebody has taken it. Ranges of earlier
  // generations were all taken then, so that a late worker finds nothing and touches nothing.
  void claim_share(int worker, uint64_t now) {
    uint64_t before = now - 1;
    if (!claimed[static_cast<size_t>(worker)].compare_exchange_strong(before, now)) return;
    run_share(worker);
    pending.fetch_sub(1, std::memory_order_release);
  }

  // Waits for a generation after `seen`, and returns it.
  uint64_t await(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const uint64_t now = generation.load(std::memory_order_acquire);
      if (now != seen) return now;
      pause();
    }
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
    return generation.load(std::memory_order_acquire);
  }

  void serve(int worker) {
    uint64_t seen = 0;
    while (true) {
      seen = await(seen);
      if (stop.load(std::memory_order_acquire)) return;
      claim_share(worker, seen);
    }
  }

  void announce() {
    {
      const std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int workers) : state_(std::make_unique<State>()) {
  CHECK(workers >= 1);
  state_->workers = workers;
  state_->claimed = std::vector<std::atomic<uint64_t>>(static_cast<size_t>(workers));
  State* state = state_.get();
  for (int worker = 1; worker < workers; ++worker) {
    state_->threads.emplace_back([state, worker] { state->serve(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->announce();
  state_->threads.clear();
}

int ThreadPool::workers() const { return state_->workers; }

void ThreadPool::parallel_for(int64_t n,
                              const std::function<void(int64_t begin, int64_t end)>& body) {
  if (n <= 0) return;
  if (state_->workers == 1 || n == 1) {
    body(0, n);
    return;
  }
  state_->body = &body;
  state_->n = n;
  state_->pending.store(state_->workers - 1, std::memory_order_relaxed);
  state_->announce();
  state_->run_share(0);
  const uint64_t now = state_->generation.load(std::memory_order_relaxed);
  for (int worker = 1; worker < state_->workers; ++worker) state_->claim_share(worker, now);
  int spin = 0;
  while (state_->pending.load(std::memory_order_acquire) != 0) {
    if (++spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace quire
