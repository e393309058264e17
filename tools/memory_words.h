// Memory that is really there: every word of a range written with a value of its own, and read
// back, on the device that owns it. For benches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace quire {

// Writes `bytes`, a multiple of 8, in `backend`'s memory, reads them again, and says how many words
// are wrong. Values follow from place and `seed`: ranges that share memory give themselves away.
int64_t count_bad_words(Backend& backend, std::byte* data, int64_t bytes, uint64_t seed);

}  // namespace quire
