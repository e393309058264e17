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
  // The same for a file that must survive a power cut and must not be there yet: its bytes are on
  // the disk before it has its name. Errors: as write_at; invalid_argument when the name is taken.
  Status finish_durably();

 private:
  OutputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  Error failure(const char* what) const;

  std::string path_;  // the final one
  int descriptor_ = -1;
};

// Makes the names in a folder survive a power cut. Errors: unavailable.
Status sync_folder(const std::string& dir);

// A small file in one call. Errors: as OutputFile.
Status write_text_file(const std::string& path, std::string_view text);
// The same with finish_durably.
Status write_new_file(const std::string& path, std::string_view text);

}  // namespace quire
