#include "cpu/workers.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire::cpu {

namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 10;

// Handing work to another thread and waiting for it costs about a microsecond; a core does this
// many multiply-adds in that time.
constexpr int64_t kWorthAThread = 32768;

}  // namespace

void Scratch::reset() {
  if (chunks_.size() > 1) {
    // The op needed more than there was: the next one gets it in one piece.
    int64_t bytes = 0;
    for (const Buffer& chunk : chunks_) bytes += chunk.bytes();
    chunks_.clear();
    std::byte* data = memory_->allocate(bytes);
    CHECK(data != nullptr);
    chunks_.emplace_back(memory_, data, bytes);
  }
  used_ = 0;
}

std::byte* Scratch::take_bytes(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kBufferAlignment);
  if (chunks_.empty() || chunks_.back().bytes() - used_ < size) {
    const int64_t chunk_bytes = std::max(size, kChunkBytes);
    std::byte* data = memory_->allocate(chunk_bytes);
    CHECK(data != nullptr);
    chunks_.emplace_back(memory_, data, chunk_bytes);
    used_ = 0;
  }
  std::byte* out = chunks_.back().data() + used_;
  used_ += size;
  return out;
}

Workers::Workers(int n_threads, HostMemory* memory)
    : pool_(n_threads), scratch_(), shared_(memory) {
  for (int worker = 0; worker < n_threads; ++worker) scratch_.emplace_back(memory);
}

int Workers::count_for(int64_t multiply_adds) const {
  return static_cast<int>(std::clamp<int64_t>(multiply_adds / kWorthAThread, 1, count()));
}

void Workers::each(int n, const std::function<void(int worker, Scratch& scratch)>& body) {
  CHECK(0 < n && n <= count());
  pool_.parallel_for(n, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      Scratch& scratch = scratch_[static_cast<size_t>(worker)];
      scratch.reset();
      body(static_cast<int>(worker), scratch);
    }
  });
}

}  // namespace quire::cpu
