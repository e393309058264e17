// EngineDesk: an engine behind the bounded queue that other threads reach it through. It has no
// thread of its own: EngineService drives it with one, the simulation with an event.
//
// The first part is for any thread and does not block; the second is for the one that drives.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace quire {

class EngineDesk {
 public:
  // What an operator wants of the engine between two steps.
  using Work = std::function<void(Engine&)>;

  // `clock`, `log` and `executor` outlive the desk.
  EngineDesk(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log);
  ~EngineDesk();
  EngineDesk(const EngineDesk&) = delete;
  EngineDesk& operator=(const EngineDesk&) = delete;

  // As EngineService's.
  Result<RequestId> submit(GenerateRequest request, std::unique_ptr<OutputSink> sink);
  void abort(RequestId request);
  void drain();
  bool is_idle() const;
  EngineStats stats() const;
  // False, and `work` is not called, when the desk is closed or overrun.
  bool ask(Work work);
  // No more is taken from now on.
  void close();

  // Carries out what is waiting, then one step; true when there was something to do.
  bool turn();
  // Waits for a command, no longer than this, and carries it out.
  void wait_for(std::chrono::microseconds timeout);
  // Carries out what is left, and aborts every request.
  void end();
  Engine& engine();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
