// Buffer: owned, aligned memory of one backend. Move-only; freed where it was made.
//
// Not a tensor: it has bytes, no shape and no type. `view` borrows a typed window on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"
#include "tensor/view.h"

namespace quire {

// Every Buffer begins at a multiple of this: a cache line, and what a 128-byte bulk copy needs.
inline constexpr int64_t kBufferAlignment = 128;

class Memory {
 public:
  virtual ~Memory() = default;
  // `bytes` > 0. Null when there is no memory left.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* data, int64_t bytes) = 0;
  // How often memory was given, where that is counted: what runs in steady state adds nothing.
  virtual uint64_t allocations() const { return 0; }
};

class Buffer {
 public:
  Buffer() = default;
  // Takes over memory that `memory` allocated; `memory` outlives the Buffer.
  Buffer(Memory* memory, std::byte* data, int64_t bytes)
      : memory_(memory), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) memory_->release(data_, bytes_);
  }

  int64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }
  // Host memory only.
  std::span<std::byte> span() const { return {data_, static_cast<size_t>(bytes_)}; }

  // A contiguous view of T over the first bytes. A shape that does not fit is a programmer error.
  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> view(Size... size) const {
    const auto v = view_of(reinterpret_cast<T*>(data_), size...);
    CHECK(v.size() * static_cast<int64_t>(sizeof(T)) <= bytes_);
    return v;
  }

 private:
  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace quire
