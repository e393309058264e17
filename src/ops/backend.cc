#include "ops/backend.h"

#include "base/text.h"

namespace quire {

Result<Buffer> allocate(Backend& backend, int64_t bytes, std::string_view what) {
  CHECK(bytes > 0);
  std::byte* data = backend.memory().allocate(bytes);
  if (data == nullptr) {
    return resource_exhausted(
        format("no memory on %s for %.*s: %s asked", std::string(backend.name()).c_str(),
               static_cast<int>(what.size()), what.data(), human_bytes(bytes).c_str()));
  }
  return Buffer(&backend.memory(), data, bytes);
}

}  // namespace quire
