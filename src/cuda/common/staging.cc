#include "cuda/common/staging.h"

#include <algorithm>
#include <cstring>

#include "cuda/common/cuda_must.h"

namespace quire::cuda {

Staging::Staging(cudaStream_t stream) : stream_(stream) {
  CUDA_MUST(cudaStreamCreateWithFlags(&aside_, cudaStreamNonBlocking));
  void* pinned = nullptr;
  CUDA_MUST(cudaMallocHost(&pinned, kSlots * static_cast<size_t>(kSlotBytes)));
  pinned_ = static_cast<std::byte*>(pinned);
  for (size_t i = 0; i < kSlots; ++i) {
    slots_[i].data = pinned_ + static_cast<int64_t>(i) * kSlotBytes;
    CUDA_MUST(cudaEventCreateWithFlags(&slots_[i].free, cudaEventDisableTiming));
  }
}

Staging::~Staging() {
  CUDA_MUST(cudaStreamSynchronize(stream_));
  for (Slot& slot : slots_) CUDA_MUST(cudaEventDestroy(slot.free));
  CUDA_MUST(cudaStreamDestroy(aside_));
  CUDA_MUST(cudaFreeHost(pinned_));
}

Staging::Slot& Staging::next_slot() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  CUDA_MUST(cudaEventSynchronize(slot.free));
  return slot;
}

void Staging::send(std::byte* to, std::span<const std::byte> from) {
  ++sent_;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_MUST(cudaStreamIsCapturing(stream_, &capture));
  // A replay would find something else in the slot: such a recording is thrown away (sent()).
  if (capture != cudaStreamCaptureStatusNone) return;
  for (size_t at = 0; at < from.size();) {
    const size_t bytes = std::min(from.size() - at, static_cast<size_t>(kSlotBytes));
    Slot& slot = next_slot();
    std::memcpy(slot.data, from.data() + at, bytes);
    CUDA_MUST(cudaMemcpyAsync(to + at, slot.data, bytes, cudaMemcpyHostToDevice, stream_));
    CUDA_MUST(cudaEventRecord(slot.free, stream_));
    at += bytes;
  }
}

void Staging::fetch(std::span<std::byte> to, const std::byte* from) {
  for (size_t at = 0; at < to.size();) {
    const size_t bytes = std::min(to.size() - at, static_cast<size_t>(kSlotBytes));
    Slot& slot = next_slot();
    CUDA_MUST(cudaMemcpyAsync(slot.data, from + at, bytes, cudaMemcpyDeviceToHost, stream_));
    CUDA_MUST(cudaEventRecord(slot.free, stream_));
    CUDA_MUST(cudaEventSynchronize(slot.free));
    std::memcpy(to.data() + at, slot.data, bytes);
    at += bytes;
  }
  if (to.empty()) CUDA_MUST(cudaStreamSynchronize(stream_));
}

void Staging::fetch_settled(std::span<std::byte> to, const std::byte* from) {
  CUDA_MUST(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, aside_));
  CUDA_MUST(cudaStreamSynchronize(aside_));
}

}  // namespace quire::cuda
