// A test's own folder: empty at its start, gone at its end.
//
// Tests run beside each other, as processes of one program and of the same program built otherwise:
// a name that two of them write is a file that changes while one reads it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace quire {

class TempFolder {
 public:
  TempFolder() : path_((std::filesystem::temp_directory_path() / "quire_test_XXXXXX").string()) {
    CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  // Of a file in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace quire
