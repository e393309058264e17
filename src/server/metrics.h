// Metrics: what /metrics shows, under SGLang's names where we can fill them truly, and under
// `quire:` for the rest. The library behind it (prometheus-cpp) is seen by metrics.cc alone.
//
// Used by the server's thread. Gauges and counters of the engine are taken from its stats when the
// page is asked for; latencies are observed as they happen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace quire {

// The server's own counters; they only grow, `exchanges_active` and `connections` apart.
struct ServerCounts {
  int connections = 0;
  int exchanges_active = 0;
  uint64_t http_requests = 0, http_refused = 0;
  uint64_t clients_gone = 0, clients_stalled = 0;
  uint64_t late_events = 0;  // of requests that were over: normal traffic, ignored
};

class Metrics {
 public:
  // `model_name` labels every series, as SGLang has it.
  Metrics(const std::string& model_name, int32_t page_tokens);
  ~Metrics();

  void observe_time_to_first_token(double seconds);
  void observe_inter_token_latency(double seconds, int32_t tokens);
  void observe_request(double seconds);
  void count_response(int status);
  void set_startup(double load_seconds, double total_seconds);

  // The page, in Prometheus' text format.
  std::string render(const EngineStats& engine, const ServerCounts& server);

 private:
  struct Series;
  std::unique_ptr<Series> series_;
};

}  // namespace quire
