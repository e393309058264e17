#include "server/admission_desk.h"

#include <chrono>
#include <utility>

namespace quire {

namespace {

// How long a thread sleeps in the queue before it looks whether it is to end.
constexpr std::chrono::microseconds kPoll{200'000};

}  // namespace

AdmissionDesk::AdmissionDesk(const ServedModel& model, int threads, size_t jobs_max, Done done)
    : model_(model), done_(std::move(done)), jobs_(jobs_max) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

AdmissionDesk::~AdmissionDesk() {
  for (std::jthread& thread : threads_) thread.request_stop();
  jobs_.close();
}

void AdmissionDesk::work(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::optional<AdmissionJob> job = jobs_.pop_for(kPoll);
    if (!job || stop.stop_requested()) continue;
    done_(job->exchange, admit(model_, job->endpoint, job->body, job->caller));
  }
}

}  // namespace quire
