// AdmissionDesk: the threads on which requests are admitted, behind a bounded queue.
//
// Tokenizing a large prompt takes milliseconds to seconds; the thread that answers health checks
// and moves streams must not wait for it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "server/admission.h"
#include "server/http.h"

namespace quire {

struct AdmissionJob {
  ExchangeId exchange;
  Endpoint endpoint = Endpoint::chat;
  std::string body;
  Caller caller;
};

class AdmissionDesk {
 public:
  static constexpr size_t kBodiesBytesMax = size_t{256} << 20;

  using Done = std::function<void(ExchangeId, Admission)>;

  // `done` is called on the desk's threads. `model` outlives the desk.
  AdmissionDesk(const ServedModel& model, int threads, size_t jobs_max, Done done);
  // Finishes the job at hand; those that wait are dropped.
  ~AdmissionDesk();
  AdmissionDesk(const AdmissionDesk&) = delete;
  AdmissionDesk& operator=(const AdmissionDesk&) = delete;

  // False when too many wait, or their bodies are too large together.
  [[nodiscard]] bool submit(AdmissionJob job);

 private:
  void work(const std::stop_token& stop);

  const ServedModel& model_;
  const Done done_;
  BoundedQueue<AdmissionJob> jobs_;
  std::atomic<size_t> bodies_bytes_{0};  // of the jobs that wait or are at hand
  std::vector<std::jthread> threads_;
};

}  // namespace quire
