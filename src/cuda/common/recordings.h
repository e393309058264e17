// Recordings: CUDA graphs of what was launched on a stream, kept until the end.
//
// A graph holds the addresses of its first run: whatever it touches stays where it is. Launching
// one allocates nothing (it was uploaded when it was made).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace quire::cuda {

class Recordings {
 public:
  explicit Recordings(cudaStream_t stream) : stream_(stream) {}
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  // Captures what `calls` launches on the stream, without running it. Returns its number. Then, if
  // `wants_shared()`, every kernel of it asks for all of a multiprocessor's memory as shared
  // memory: one that asks for it beside others that do not has to wait until a multiprocessor is
  // empty.
  int add(const std::function<void()>& calls, const std::function<bool()>& wants_shared);
  void replay(int number) const;
  // Kernels, copies and fills of one.
  int64_t nodes(int number) const { return n_nodes_[static_cast<size_t>(number)]; }

 private:
  cudaStream_t stream_;
  std::vector<cudaGraphExec_t> graphs_;
  std::vector<int64_t> n_nodes_;  // of each
};

}  // namespace quire::cuda
