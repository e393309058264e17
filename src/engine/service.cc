#include "engine/service.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/engine_desk.h"

namespace quire {

namespace {

// How long an idle engine sleeps between looks at its clock; commands wake it at once.
constexpr std::chrono::milliseconds kIdleWait{100};

// What a caller waits for: the answer to a command that the engine's thread carries out.
template <class T>
class Answer {
 public:
  void give(T value) {
    // Notified under the lock: the caller destroys this as soon as it may leave take().
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    ready_.notify_one();
  }
  T take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return value_.has_value(); });
    return *std::move(value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::optional<T> value_;
};

}  // namespace

struct EngineService::State {
  State(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log)
      : desk(config, executor, clock, log) {}

  void run() {
    while (!stopping.load(std::memory_order_relaxed)) {
      if (!desk.turn()) desk.wait_for(kIdleWait);
    }
    desk.end();
  }
  // Has an operator's work done and waits; `otherwise` when the service is ending or overrun.
  template <class T, class Work>
  T ask(Work work, T otherwise) {
    Answer<T> answer;
    const bool taken = desk.ask([&](Engine& engine) { answer.give(work(engine)); });
    return taken ? answer.take() : std::move(otherwise);
  }

  EngineDesk desk;
  std::atomic<bool> stopping = false;
  std::thread thread;
};

EngineService::EngineService(const EngineConfig& config, Executor& executor, const Clock& clock,
                             Log& log)
    : state_(std::make_unique<State>(config, executor, clock, log)) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

EngineService::~EngineService() {
  // Closed first: what is pushed before that is carried out, and nothing comes after.
  state_->desk.close();
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->thread.join();
}

Result<RequestId> EngineService::submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) {
  return state_->desk.submit(std::move(request), std::move(sink));
}

void EngineService::abort(RequestId request) { state_->desk.abort(request); }
void EngineService::drain() { state_->desk.drain(); }
bool EngineService::is_idle() const { return state_->desk.is_idle(); }
EngineStats EngineService::stats() const { return state_->desk.stats(); }

Status EngineService::audit() {
  return state_->ask([](Engine& engine) { return engine.audit(); },
                     Status(unavailable("the engine is ending")));
}

IntegrityReport EngineService::integrity() {
  return state_->ask([](Engine& engine) { return engine.integrity(); }, IntegrityReport{});
}

Status EngineService::release_page(PageId page) {
  return state_->ask([page](Engine& engine) { return engine.release_page(page); },
                     Status(unavailable("the engine is ending")));
}

bool EngineService::flush_cache() {
  return state_->ask([](Engine& engine) { return engine.flush_cache(); }, false);
}

}  // namespace quire
