#include "cuda/common/event_stopwatch.h"

#include "base/check.h"
#include "cuda/common/cuda_must.h"

namespace quire::cuda {

EventStopwatch::EventStopwatch(cudaStream_t stream, int32_t n_marks)
    : stream_(stream), events_(static_cast<size_t>(n_marks)) {
  for (cudaEvent_t& event : events_) CUDA_MUST(cudaEventCreate(&event));
}

EventStopwatch::~EventStopwatch() {
  for (cudaEvent_t event : events_) CUDA_MUST(cudaEventDestroy(event));
}

void EventStopwatch::mark(int32_t index) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_MUST(cudaStreamIsCapturing(stream_, &status));
  // External: a node that records at every launch, not an edge between captured streams.
  const unsigned flags =
      status == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  CUDA_MUST(cudaEventRecordWithFlags(at(index), stream_, flags));
}

double EventStopwatch::us_between(int32_t from, int32_t to) {
  CUDA_MUST(cudaEventSynchronize(at(from)));
  CUDA_MUST(cudaEventSynchronize(at(to)));
  float ms = 0;
  CUDA_MUST(cudaEventElapsedTime(&ms, at(from), at(to)));
  return 1e3 * static_cast<double>(ms);
}

cudaEvent_t EventStopwatch::at(int32_t index) const {
  CHECK(index >= 0 && static_cast<size_t>(index) < events_.size());
  return events_[static_cast<size_t>(index)];
}

}  // namespace quire::cuda
