#include "tools/memory_words.h"

#include "base/rng.h"
#ifdef QUIRE_CUDA
#include "cuda/bench/memory_check.h"
#endif

namespace quire {

namespace {

int64_t count_bad_host_words(std::byte* data, int64_t bytes, uint64_t seed) {
  auto* const words = reinterpret_cast<uint64_t*>(data);
  const auto value = [seed](int64_t i) { return mix64(seed ^ mix64(static_cast<uint64_t>(i))); };
  for (int64_t i = 0; i < bytes / 8; ++i) words[i] = value(i);
  int64_t bad = 0;
  for (int64_t i = 0; i < bytes / 8; ++i) bad += words[i] != value(i) ? 1 : 0;
  return bad;
}

}  // namespace

int64_t count_bad_words(Backend& backend, std::byte* data, int64_t bytes, uint64_t seed) {
  CHECK(bytes % 8 == 0);
  // Nothing that was asked of the backend may still write there.
  backend.copy_out({}, nullptr);
#ifdef QUIRE_CUDA
  if (!backend.reads_host_memory()) {
    write_cuda_words(data, bytes, seed);
    return count_wrong_cuda_words(data, bytes, seed);
  }
#endif
  return count_bad_host_words(data, bytes, seed);
}

}  // namespace quire
