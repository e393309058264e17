// Stopwatch of the CUDA backend: events in its stream, or in the graph that is being captured.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "ops/stopwatch.h"

namespace quire::cuda {

class EventStopwatch final : public Stopwatch {
 public:
  EventStopwatch(cudaStream_t stream, int32_t n_marks);
  ~EventStopwatch() override;
  EventStopwatch(const EventStopwatch&) = delete;
  EventStopwatch& operator=(const EventStopwatch&) = delete;

  void mark(int32_t index) override;
  double us_between(int32_t from, int32_t to) override;

 private:
  cudaEvent_t at(int32_t index) const;

  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace quire::cuda
