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

bool AdmissionDesk::submit(AdmissionJob job) {
  const size_t bytes = job.body.size();
  if (bodies_bytes_.fetch_add(bytes) + bytes <= kBodiesBytesMax && jobs_.try_push(job)) return true;
  bodies_bytes_.fetch_sub(bytes);
  return false;
}

void AdmissionDesk::work(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::optional<AdmissionJob> job = jobs_.pop_for(kPoll);
    if (!job || stop.stop_requested()) continue;
    Admission admission = admit(model_, job->endpoint, job->body, job->caller);
    bodies_bytes_.fetch_sub(job->body.size());
    done_(job->exchange, std::move(admission));
  }
}

}  // namespace quire
