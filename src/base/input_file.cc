#include "base/input_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace quire {

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor_ >= 0) return file;
  const std::string message = path + ": " + std::strerror(errno);
  return errno == ENOENT ? not_found(message) : unavailable(message);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return unavailable(format("%s: cannot be read: %s", path_.c_str(), std::strerror(errno)));
    }
    if (n == 0) {
      return corruption(format("%s: ends %zu bytes early, at %lld", path_.c_str(), out.size(),
                               static_cast<long long>(offset)));
    }
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

void InputFile::will_need(int64_t offset, int64_t bytes) const {
  // Advice alone: where the system knows none, nothing is lost.
  (void)::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);
}

}  // namespace quire
