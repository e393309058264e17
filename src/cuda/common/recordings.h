// Recordings: CUDA graphs of what was launched on a stream, kept until the end.
//
// A graph holds the addresses of its first run: whatever it touches stays where it is. Launching
// one allocates nothing (it was uploaded when it was made).
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

namespace quire::cuda {

class Recordings {
 public:
  explicit Recordings(cudaStream_t stream) : stream_(stream) {}
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  // Captures what `calls` launches on the stream, without running it. Returns its number.
  int add(const std::function<void()>& calls);
  void replay(int number) const;

 private:
  cudaStream_t stream_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace quire::cuda
