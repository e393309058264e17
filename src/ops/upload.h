// Upload: much host memory on its way into a backend's memory, read by several threads at once.
//
// For loading: it holds staging memory and threads of its own, and gives both back when it goes.
// Backend::copy_in is for everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace quire {

// Rows of host memory, each `stride` bytes after the last, that become one range.
struct UploadPiece {
  std::byte* to = nullptr;          // [n_rows * row_bytes], in the backend's memory
  const std::byte* from = nullptr;  // host
  int64_t n_rows = 0;
  int64_t row_bytes = 0;
  int64_t stride = 0;  // of `from`; >= row_bytes

  int64_t bytes() const { return n_rows * row_bytes; }
};

// Called on the calling thread, now and then: bytes read since the last call.
using UploadProgress = std::function<void(int64_t bytes)>;

class Upload {
 public:
  virtual ~Upload() = default;

  // Copies all pieces, ordered with the ops around it; returns when host memory has been read. When
  // the destination of a piece begins less than kBufferAlignment behind the end of the one before,
  // the bytes between them are padding and may change.
  virtual void copy(std::span<const UploadPiece> pieces, const UploadProgress& progress) = 0;
};

}  // namespace quire
