#include "base/rng.h"

#include <sys/random.h>

#include <cerrno>

namespace quire {

Status fill_secure_random(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::getrandom(out.data() + done, out.size() - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return unavailable("getrandom: the system gave no random bytes");
    done += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace quire
