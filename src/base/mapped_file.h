// MappedFile: a whole file, read-only, mapped into memory.
//
// Opened once; its size is what fstat said then. A file that shrinks while it is mapped raises
// SIGBUS on a read past its new end: checkpoints must not be changed under a running server.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

class MappedFile {
 public:
  // Errors: not_found (no such file), invalid_argument (not a regular file), unavailable (the
  // system refused). The message names the path.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_ = nullptr;  // null when the file is empty
  size_t size_ = 0;
};

// The whole of a small file. Errors: as MappedFile::open, and invalid_argument past `bytes_max`.
Result<std::string> read_text_file(const std::string& path, size_t bytes_max);

}  // namespace quire
