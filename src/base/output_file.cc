#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace quire {

namespace {

std::string unfinished(const std::string& path) { return path + ".partial"; }

}  // namespace

Error OutputFile::failure(const char* what) const {
  return unavailable(format("%s: %s: %s", path_.c_str(), what, std::strerror(errno)));
}

Result<OutputFile> OutputFile::create(const std::string& path, int64_t bytes) {
  OutputFile out(path,
                 ::open(unfinished(path).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (out.descriptor_ < 0) return out.failure("cannot be created");
  if (::ftruncate(out.descriptor_, bytes) != 0) return out.failure("cannot be sized");
  return out;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(unfinished(path_).c_str());
}

Status OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failure("cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

Status OutputFile::finish() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return failure("cannot be closed");
  if (::rename(unfinished(path_).c_str(), path_.c_str()) != 0) return failure("cannot be renamed");
  return {};
}

Status OutputFile::finish_durably() {
  if (::fsync(descriptor_) != 0) return failure("cannot be written to the disk");
  if (::renameat2(AT_FDCWD, unfinished(path_).c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) !=
      0) {
    if (errno == EEXIST) return invalid_argument(path_ + ": is there already");
    return failure("cannot be renamed");
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return failure("cannot be closed");
  return {};
}

namespace {

Result<OutputFile> whole_text(const std::string& path, std::string_view text) {
  OutputFile file = TRY(OutputFile::create(path, static_cast<int64_t>(text.size())));
  TRY_OK(file.write_at(0, std::as_bytes(std::span(text.data(), text.size()))));
  return file;
}

}  // namespace

Status sync_folder(const std::string& dir) {
  const int descriptor = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool is_synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (is_synced) return {};
  return unavailable(format("%s: cannot be synced: %s", dir.c_str(), std::strerror(reason)));
}

Status write_text_file(const std::string& path, std::string_view text) {
  OutputFile file = TRY(whole_text(path, text));
  return file.finish();
}

Status write_new_file(const std::string& path, std::string_view text) {
  OutputFile file = TRY(whole_text(path, text));
  return file.finish_durably();
}

}  // namespace quire
