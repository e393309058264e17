// OutputFile: a file of known size that several threads write at once, each its own ranges.
//
// It replaces what was there only when it is complete: until `finish` it has another name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

class OutputFile {
 public:
  // Errors: unavailable, naming the path.
  static Result<OutputFile> create(const std::string& path, int64_t bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();  // an unfinished file is removed

  // Any thread. Errors: unavailable (the disk is full).
  Status write_at(int64_t offset, std::span<const std::byte> bytes) const;
  // Gives the file its name.
  Status finish();

 private:
  OutputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  Error failure(const char* what) const;

  std::string path_;  // the final one
  int descriptor_ = -1;
};

// A small file in one call. Errors: as OutputFile.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace quire
