// Staging: pinned host memory that copies to the device go through.
//
// A ring of slots, each free again when the copy out of it is done: the caller's bytes may change
// as soon as `send` returns, and the device never waits for pageable memory.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::cuda {

class Staging {
 public:
  static constexpr int64_t kSlotBytes = int64_t{512} << 10;  // 10 us at the link's 55 GB/s
  static constexpr size_t kSlots = 64;

  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies in stream order, in pieces of a slot.
  void send(std::byte* to, std::span<const std::byte> from);
  // Waits for the stream, then copies.
  void fetch(std::span<std::byte> to, const std::byte* from);
  // Copies what no unfinished work writes to pinned memory, waiting for no work but the copy.
  void fetch_settled(std::span<std::byte> to, const std::byte* from);

  // Calls of send so far. While the stream is being captured they copy nothing.
  int64_t sent() const { return sent_; }

 private:
  struct Slot {
    std::byte* data = nullptr;   // [kSlotBytes]
    cudaEvent_t free = nullptr;  // recorded behind the last copy out of it
  };
  Slot& next_slot();  // waits until it is free

  cudaStream_t stream_;
  cudaStream_t aside_ = nullptr;  // for settled bytes
  int64_t sent_ = 0;
  std::byte* pinned_ = nullptr;
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

}  // namespace quire::cuda
