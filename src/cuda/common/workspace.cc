#include "cuda/common/workspace.h"

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

Workspace::Workspace(DeviceMemory* memory, cudaStream_t stream, int64_t bytes)
    : memory_(memory), stream_(stream) {
  begin(bytes);
}

void Workspace::begin(int64_t bytes) {
  used_ = 0;
  if (bytes <= buffer_.bytes()) return;
  CUDA_MUST(cudaStreamSynchronize(stream_));
  if (keeps_) outgrown_.push_back(std::move(buffer_));
  { const Buffer old = std::move(buffer_); }  // freed before the larger one is asked for
  std::byte* data = memory_->allocate(bytes);
  CUDA_MUST(data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
  buffer_ = Buffer(memory_, data, bytes);
}

std::byte* Workspace::take_bytes(int64_t bytes) {
  std::byte* out = buffer_.data() + used_;
  used_ += bytes_of<std::byte>(bytes);
  CHECK(used_ <= buffer_.bytes());
  return out;
}

}  // namespace quire::cuda
