#include "engine/service.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/queue.h"
#include "base/text.h"

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

struct SubmitCommand {
  RequestId id;
  GenerateRequest request;
  std::unique_ptr<OutputSink> sink;
};
struct AbortCommand {
  RequestId id;
};
struct AuditCommand {
  Answer<Status>* answer;  // lives on the caller's stack, which waits
};
struct FlushCommand {
  Answer<bool>* answer;  // the same
};
struct ReportCommand {
  Answer<IntegrityReport>* answer;  // the same
};
struct ReleaseCommand {
  PageId page;
  Answer<Status>* answer;  // the same
};
using Command = std::variant<SubmitCommand, AbortCommand, AuditCommand, FlushCommand, ReportCommand,
                             ReleaseCommand>;

// Room for more than can ever be waiting. Between two looks of the engine's thread at the queue at
// most one step ends requests, so that at most two generations of live requests leave a submission
// and an abort each; the rest is for operators.
size_t queue_capacity(const EngineConfig& config) {
  const auto live = static_cast<size_t>(config.running_requests_max) +
                    static_cast<size_t>(config.queued_requests_max);
  return 4 * live + 64;
}

}  // namespace

struct EngineService::State {
  State(const EngineConfig& engine_config, Executor& executor, const Clock& clock, Log& log)
      : config(engine_config),
        commands(queue_capacity(engine_config)),
        engine(engine_config, executor, clock, log) {}

  void run();
  void carry_out(Command command);
  void publish_stats();
  // Sends an operator's command and waits; `otherwise` when the service is ending or overrun.
  template <class T, class MakeCommand>
  T ask(MakeCommand make_command, T otherwise);

  void end_request(RequestId id) {
    const std::lock_guard lock(mutex);
    live.erase(id);
  }

  const EngineConfig config;
  BoundedQueue<Command> commands;
  std::atomic<bool> stopping = false;

  mutable std::mutex mutex;  // for what is below, down to `engine`
  // Requests whose last output is still to come, and whether an abort was sent after them.
  std::unordered_map<RequestId, bool> live;
  uint64_t last_id = 0;
  bool draining = false;
  EngineStats stats;

  Engine engine;  // touched by the engine's thread only
  std::thread thread;
};

namespace {

// Passes outputs on, and tells the service when the last one is out.
template <class OnEnd>
class TrackedSink final : public OutputSink {
 public:
  TrackedSink(std::unique_ptr<OutputSink> to, OnEnd on_end) : to_(std::move(to)), on_end_(on_end) {}

  void on_output(RequestOutput output) override {
    const bool is_last = output.finish.has_value();
    const RequestId id = output.request;
    to_->on_output(std::move(output));
    if (is_last) on_end_(id);
  }

 private:
  std::unique_ptr<OutputSink> to_;
  OnEnd on_end_;
};

template <class OnEnd>
std::unique_ptr<OutputSink> track(std::unique_ptr<OutputSink> to, OnEnd on_end) {
  return std::make_unique<TrackedSink<OnEnd>>(std::move(to), on_end);
}

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace

void EngineService::State::carry_out(Command command) {
  std::visit(
      Overloaded{
          [&](SubmitCommand& submit) {
            auto sink = track(std::move(submit.sink), [this](RequestId id) { end_request(id); });
            // It was checked and counted where it was submitted.
            const Status status =
                engine.add_as(submit.id, std::move(submit.request), std::move(sink));
            CHECK(status.ok());
          },
          [&](AbortCommand& abort) { engine.abort(abort.id); },
          [&](AuditCommand& audit) { audit.answer->give(engine.audit()); },
          [&](FlushCommand& flush) { flush.answer->give(engine.flush_cache()); },
          [&](ReportCommand& report) { report.answer->give(engine.integrity()); },
          [&](ReleaseCommand& release) { release.answer->give(engine.release_page(release.page)); },
      },
      command);
}

void EngineService::State::publish_stats() {
  EngineStats now = engine.stats();
  const std::lock_guard lock(mutex);
  stats = now;
}

void EngineService::State::run() {
  while (!stopping.load(std::memory_order_relaxed)) {
    while (std::optional<Command> command = commands.try_pop()) carry_out(*std::move(command));
    const bool worked = engine.step();
    if (!worked) engine.look_after_idle();
    publish_stats();
    if (worked) continue;
    if (std::optional<Command> command = commands.pop_for(kIdleWait)) {
      carry_out(*std::move(command));
    }
  }
  while (std::optional<Command> command = commands.try_pop()) carry_out(*std::move(command));
  engine.abort_all();
  publish_stats();
}

template <class T, class MakeCommand>
T EngineService::State::ask(MakeCommand make_command, T otherwise) {
  Answer<T> answer;
  Command command = make_command(&answer);
  return commands.try_push(command) ? answer.take() : std::move(otherwise);
}

EngineService::EngineService(const EngineConfig& config, Executor& executor, const Clock& clock,
                             Log& log)
    : state_(std::make_unique<State>(config, executor, clock, log)) {
  state_->stats = state_->engine.stats();
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

EngineService::~EngineService() {
  // Closed first: what is pushed before that is carried out, and nothing comes after.
  state_->commands.close();
  state_->stopping.store(true, std::memory_order_relaxed);
  state_->thread.join();
}

Result<RequestId> EngineService::submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) {
  CHECK(sink != nullptr);
  TRY_OK(check_request(state_->config, request));
  const std::lock_guard lock(state_->mutex);
  if (state_->draining) return unavailable("the server is draining: no new requests");
  const auto requests_max = static_cast<size_t>(state_->config.running_requests_max) +
                            static_cast<size_t>(state_->config.queued_requests_max);
  if (state_->live.size() >= requests_max) {
    return resource_exhausted(
        format("%zu requests are running or queued, the most there may be", requests_max));
  }
  // Ids are given and sent under one lock, so that they reach the engine in order.
  const RequestId id{++state_->last_id};
  Command command = SubmitCommand{.id = id, .request = std::move(request), .sink = std::move(sink)};
  if (!state_->commands.try_push(command)) return unavailable("the engine is ending");
  state_->live.emplace(id, false);
  return id;
}

void EngineService::abort(RequestId request) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(request);
  if (found == state_->live.end() || found->second) return;
  found->second = true;
  // Refused only when the service is ending, which aborts everything.
  static_cast<void>(state_->commands.try_push(Command(AbortCommand{request})));
}

void EngineService::drain() {
  const std::lock_guard lock(state_->mutex);
  state_->draining = true;
}

bool EngineService::is_idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live.empty();
}

EngineStats EngineService::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

Status EngineService::audit() {
  return state_->ask<Status>([](Answer<Status>* answer) { return AuditCommand{answer}; },
                             unavailable("the engine is ending"));
}

IntegrityReport EngineService::integrity() {
  return state_->ask<IntegrityReport>(
      [](Answer<IntegrityReport>* answer) { return ReportCommand{answer}; }, {});
}

Status EngineService::release_page(PageId page) {
  return state_->ask<Status>(
      [page](Answer<Status>* answer) {
        return ReleaseCommand{page, answer};
      },
      unavailable("the engine is ending"));
}

bool EngineService::flush_cache() {
  return state_->ask<bool>([](Answer<bool>* answer) { return FlushCommand{answer}; }, false);
}

}  // namespace quire
