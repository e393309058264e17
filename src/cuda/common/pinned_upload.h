// PinnedUpload: host memory on its way to the device through a ring of pinned slots that several
// threads fill, while copies out of them run on the backend's stream.
//
// One thread copies 10 GB/s out of mapped files, the link carries 55: hence the threads.
#pragma once

#include <cuda_runtime.h>

#include <mutex>
#include <vector>

#include "base/thread_pool.h"
#include "ops/upload.h"

namespace quire::cuda {

class PinnedUpload final : public Upload {
 public:
  static constexpr int64_t kSlotBytes = int64_t{4} << 20;
  static constexpr int kSlotsAThread = 3;  // one being filled, one in flight, one to spare

  PinnedUpload(int device, cudaStream_t stream, int n_threads);
  ~PinnedUpload() override;
  PinnedUpload(const PinnedUpload&) = delete;
  PinnedUpload& operator=(const PinnedUpload&) = delete;

  void copy(std::span<const UploadPiece> pieces, const UploadProgress& progress) override;

 private:
  struct Slot {
    std::byte* data = nullptr;   // [kSlotBytes]
    cudaEvent_t free = nullptr;  // recorded behind the last copy out of it
  };
  // What one copy carries: pieces, or rows of one, whose destinations touch.
  struct Cargo {
    std::vector<UploadPiece> pieces;
    int64_t bytes = 0;  // from the first byte of the first destination
  };

  static std::vector<Cargo> make_cargos(std::span<const UploadPiece> pieces);
  void send(const Cargo& cargo);
  Slot take_slot();
  void give_back(Slot slot);

  int device_;
  cudaStream_t stream_;
  ThreadPool threads_;
  std::byte* pinned_ = nullptr;
  std::mutex mutex_;
  std::vector<Slot> idle_;  // oldest first; guarded by mutex_
};

}  // namespace quire::cuda
