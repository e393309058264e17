#include "cuda/common/pinned_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "cuda/common/cuda_must.h"
#include "tensor/buffer.h"

namespace quire::cuda {

namespace {

bool is_contiguous(const UploadPiece& piece) {
  return piece.n_rows == 1 || piece.stride == piece.row_bytes;
}

void read_rows(const UploadPiece& piece, std::byte* to) {
  if (is_contiguous(piece)) {
    std::memcpy(to, piece.from, static_cast<size_t>(piece.bytes()));
    return;
  }
  for (int64_t row = 0; row < piece.n_rows; ++row) {
    std::memcpy(to + row * piece.row_bytes, piece.from + row * piece.stride,
                static_cast<size_t>(piece.row_bytes));
  }
}

// The fewest bytes that a part of the piece can have.
int64_t part_bytes_min(const UploadPiece& piece) {
  return is_contiguous(piece) ? std::min(piece.bytes(), kBufferAlignment) : piece.row_bytes;
}

// The first part of `piece` that fits into `bytes`, taken off it.
UploadPiece take_part(UploadPiece* piece, int64_t bytes) {
  UploadPiece out = *piece;
  if (is_contiguous(*piece)) {
    const int64_t n = std::min(bytes, piece->bytes());
    const int64_t rest = piece->bytes() - n;
    out = {piece->to, piece->from, 1, n, n};
    *piece = {piece->to + n, piece->from + n, 1, rest, rest};
    return out;
  }
  CHECK(piece->row_bytes <= bytes);
  out.n_rows = std::min(piece->n_rows, bytes / piece->row_bytes);
  piece->n_rows -= out.n_rows;
  piece->from += out.n_rows * piece->stride;
  piece->to += out.bytes();
  return out;
}

}  // namespace

PinnedUpload::PinnedUpload(int device, cudaStream_t stream, int n_threads)
    : device_(device), stream_(stream), threads_(n_threads) {
  const int n_slots = n_threads * kSlotsAThread;
  void* pinned = nullptr;
  CUDA_MUST(cudaMallocHost(&pinned, static_cast<size_t>(n_slots * kSlotBytes)));
  pinned_ = static_cast<std::byte*>(pinned);
  for (int i = 0; i < n_slots; ++i) {
    Slot slot{.data = pinned_ + i * kSlotBytes};
    CUDA_MUST(cudaEventCreateWithFlags(&slot.free, cudaEventDisableTiming));
    idle_.push_back(slot);
  }
}

PinnedUpload::~PinnedUpload() {
  CUDA_MUST(cudaSetDevice(device_));
  CUDA_MUST(cudaStreamSynchronize(stream_));
  for (const Slot& slot : idle_) CUDA_MUST(cudaEventDestroy(slot.free));
  CUDA_MUST(cudaFreeHost(pinned_));
}

std::vector<PinnedUpload::Cargo> PinnedUpload::make_cargos(std::span<const UploadPiece> pieces) {
  std::vector<Cargo> out;
  for (UploadPiece rest : pieces) {
    while (rest.bytes() > 0) {
      const int64_t at = out.empty() ? kSlotBytes : rest.to - out.back().pieces.front().to;
      const bool touches =
          !out.empty() && at >= out.back().bytes && at - out.back().bytes < kBufferAlignment;
      const bool fits = touches && kSlotBytes - at >= part_bytes_min(rest);
      if (!fits) out.emplace_back();
      const int64_t begin = fits ? at : 0;
      out.back().pieces.push_back(take_part(&rest, kSlotBytes - begin));
      out.back().bytes = begin + out.back().pieces.back().bytes();
    }
  }
  return out;
}

PinnedUpload::Slot PinnedUpload::take_slot() {
  const std::lock_guard lock(mutex_);
  CHECK(!idle_.empty());  // no thread holds more than one
  const Slot slot = idle_.front();
  idle_.erase(idle_.begin());
  return slot;
}

void PinnedUpload::give_back(Slot slot) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(slot);
}

void PinnedUpload::send(const Cargo& cargo) {
  const Slot slot = take_slot();
  CUDA_MUST(cudaEventSynchronize(slot.free));
  std::byte* begin = cargo.pieces.front().to;
  for (const UploadPiece& piece : cargo.pieces) read_rows(piece, slot.data + (piece.to - begin));
  CUDA_MUST(cudaMemcpyAsync(begin, slot.data, static_cast<size_t>(cargo.bytes),
                            cudaMemcpyHostToDevice, stream_));
  CUDA_MUST(cudaEventRecord(slot.free, stream_));
  give_back(slot);
}

void PinnedUpload::copy(std::span<const UploadPiece> pieces, const UploadProgress& progress) {
  const std::vector<Cargo> cargos = make_cargos(pieces);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> read{0};
  const auto report = [&] {
    if (progress) progress(read.exchange(0));
  };
  threads_.parallel_for(static_cast<int64_t>(cargos.size()), [&](int64_t begin, int64_t end) {
    CUDA_MUST(cudaSetDevice(device_));
    for (int64_t i = begin; i < end; ++i) {
      const Cargo& cargo = cargos[static_cast<size_t>(i)];
      send(cargo);
      for (const UploadPiece& piece : cargo.pieces) read += piece.bytes();
      if (std::this_thread::get_id() == caller) report();
    }
  });
  report();
}

}  // namespace quire::cuda
