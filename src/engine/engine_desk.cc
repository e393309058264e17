#include "engine/engine_desk.h"

#include <mutex>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/queue.h"
#include "base/text.h"

namespace quire {

namespace {

struct SubmitCommand {
  RequestId id;
  GenerateRequest request;
  std::unique_ptr<OutputSink> sink;
};
struct AbortCommand {
  RequestId id;
};
struct AskCommand {
  EngineDesk::Work work;
};
using Command = std::variant<SubmitCommand, AbortCommand, AskCommand>;

// Room for more than can ever be waiting. Between two looks of the engine's thread at the queue at
// most one step ends requests, so that at most two generations of live requests leave a submission
// and an abort each; the rest is for operators.
size_t queue_capacity(const EngineConfig& config) {
  const auto live = static_cast<size_t>(config.running_requests_max) +
                    static_cast<size_t>(config.queued_requests_max);
  return 4 * live + 64;
}

// Passes outputs on, and tells the desk when the last one is out.
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

struct EngineDesk::State {
  State(const EngineConfig& engine_config, Executor& executor, const Clock& clock, Log& log)
      : config(engine_config),
        commands(queue_capacity(engine_config)),
        engine(engine_config, executor, clock, log) {}

  void carry_out(Command command);
  void carry_out_waiting() {
    while (std::optional<Command> command = commands.try_pop()) carry_out(*std::move(command));
  }
  void publish_stats();

  void end_request(RequestId id) {
    const std::lock_guard lock(mutex);
    live.erase(id);
    ends_are_counted = false;
  }

  const EngineConfig config;
  BoundedQueue<Command> commands;

  mutable std::mutex mutex;  // for what is below, down to `engine`
  // Requests whose last output is still to come, and whether an abort was sent after them.
  std::unordered_map<RequestId, bool> live;
  uint64_t last_id = 0;
  bool draining = false;
  EngineStats stats;
  bool ends_are_counted = true;  // false: a request has ended that `stats` does not tell of yet

  Engine engine;  // touched by the driving thread only
};

void EngineDesk::State::carry_out(Command command) {
  std::visit(Overloaded{
                 [&](SubmitCommand& submit) {
                   auto sink =
                       track(std::move(submit.sink), [this](RequestId id) { end_request(id); });
                   // It was checked and counted where it was submitted.
                   const Status status =
                       engine.add_as(submit.id, std::move(submit.request), std::move(sink));
                   CHECK(status.ok());
                 },
                 [&](AbortCommand& abort) { engine.abort(abort.id); },
                 [&](AskCommand& ask) { ask.work(engine); },
             },
             command);
}

void EngineDesk::State::publish_stats() {
  EngineStats now = engine.stats();
  const std::lock_guard lock(mutex);
  stats = now;
  ends_are_counted = true;
}

EngineDesk::EngineDesk(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log)
    : state_(std::make_unique<State>(config, executor, clock, log)) {
  state_->publish_stats();
}
EngineDesk::~EngineDesk() = default;

Result<RequestId> EngineDesk::submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) {
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

void EngineDesk::abort(RequestId request) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(request);
  if (found == state_->live.end() || found->second) return;
  found->second = true;
  // Refused only when the service is ending, which aborts everything.
  static_cast<void>(state_->commands.try_push(Command(AbortCommand{request})));
}

void EngineDesk::drain() {
  const std::lock_guard lock(state_->mutex);
  state_->draining = true;
}

bool EngineDesk::is_idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live.empty() && state_->ends_are_counted;
}

EngineStats EngineDesk::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

bool EngineDesk::ask(Work work) {
  return state_->commands.try_push(Command(AskCommand{std::move(work)}));
}

void EngineDesk::close() { state_->commands.close(); }

bool EngineDesk::turn() {
  state_->carry_out_waiting();
  const bool worked = state_->engine.step();
  if (!worked) state_->engine.look_after_idle();
  state_->publish_stats();
  return worked;
}

void EngineDesk::wait_for(std::chrono::microseconds timeout) {
  if (std::optional<Command> command = state_->commands.pop_for(timeout)) {
    state_->carry_out(*std::move(command));
  }
}

void EngineDesk::end() {
  state_->carry_out_waiting();
  state_->engine.abort_all();
  state_->publish_stats();
}

Engine& EngineDesk::engine() { return state_->engine; }

}  // namespace quire
