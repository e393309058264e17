// Workspace: device memory for the length of one op.
//
// One stream runs all ops in order, so that the next op may overwrite what the last one used. It
// grows while the largest op has not been seen (the warm-up) and never after that. Memory that a
// recording may hold the address of is kept when it grows all the same.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "cuda/common/device_memory.h"
#include "tensor/buffer.h"

namespace quire::cuda {

class Workspace {
 public:
  // `memory` outlives this. Fails (ends the process) when the device has less than `bytes`.
  Workspace(DeviceMemory* memory, cudaStream_t stream, int64_t bytes);

  // Begins an op that takes at most `bytes`, alignment included; all earlier pieces are given up.
  void begin(int64_t bytes);
  // What was handed out so far stays allocated from now on.
  void keep_handed_out() { keeps_ = true; }

  // n values of T, aligned to kBufferAlignment, contents undefined; valid until the next begin().
  template <class T>
  T* take(int64_t n) {
    return reinterpret_cast<T*>(take_bytes(n * static_cast<int64_t>(sizeof(T))));
  }
  // What take<T>(n) uses up.
  template <class T>
  static constexpr int64_t bytes_of(int64_t n) {
    return (n * static_cast<int64_t>(sizeof(T)) + kBufferAlignment - 1) / kBufferAlignment *
           kBufferAlignment;
  }

 private:
  std::byte* take_bytes(int64_t bytes);

  DeviceMemory* memory_;
  cudaStream_t stream_;
  Buffer buffer_;
  std::vector<Buffer> outgrown_;  // when keeps_
  int64_t used_ = 0;
  bool keeps_ = false;
};

}  // namespace quire::cuda
