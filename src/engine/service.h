// EngineService: the engine on a thread of its own, reached through a bounded queue.
//
// The only thing of the engine that other threads touch. All calls are thread-safe and do not block
// (drain and destruction wait for the thread). Owns the Engine; the Executor outlives it.
#pragma once

#include <chrono>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace quire {

class EngineService {
 public:
  // `clock`, `log` and `executor` outlive the service. Starts the thread.
  EngineService(const EngineConfig& config, Executor& executor, const Clock& clock, Log& log);
  // Aborts what is left and joins.
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // Queues the request. Its outputs go to `sink`, the last of them with `finish` set, exactly once.
  // Errors, at once: invalid_argument (can never fit the pool or the context), resource_exhausted
  // (as many are running and queued as there may be), unavailable (draining).
  Result<RequestId> submit(GenerateRequest request, std::unique_ptr<OutputSink> sink);

  // Ends the request within a step; its last output says `aborted`. Unknown or finished ids are
  // ignored: an abort is normal traffic and may come late.
  void abort(RequestId request);

  // No new requests from now on; those that run go on. `is_idle` turns true when none is left and
  // `stats` has counted the end of the last.
  void drain();
  bool is_idle() const;

  // A consistent copy of the counters, taken by the engine's thread at the end of its last step.
  EngineStats stats() const;
  // Runs the audit between two steps and waits for it. What it found wrong, or nothing.
  Status audit();
  // The same for the pages by state and what was found last; empty when the service is ending.
  IntegrityReport integrity();
  // An operator gives a page back that has reached quarantine. Errors: as Engine::release_page.
  Status release_page(PageId page);
  // Drops every page that no request holds from the prefix index; false when requests are running.
  bool flush_cache();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
