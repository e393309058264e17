// InputFile: a file that is read in pieces, at offsets, by any thread.
//
// For who reads much more than memory holds: unlike a mapping (base/mapped_file.h) it never counts
// as this process's memory, and a disk that fails or a file that shrank is an error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

class InputFile {
 public:
  // Errors: not_found, or unavailable (the system refused). The message names the path.
  static Result<InputFile> open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) = delete;
  ~InputFile();

  // Fills `out`. Errors: unavailable; corruption when the file ends before it should.
  Status read_at(int64_t offset, std::span<std::byte> out) const;
  // Asks the system to have a range in memory soon.
  void will_need(int64_t offset, int64_t bytes) const;

  const std::string& path() const { return path_; }

 private:
  InputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace quire
