// Device memory that is really there: every word written with a value of its own, and read back.
//
// For benches. Values follow from their place, so two ranges that share memory give themselves
// away.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// `bytes` is a multiple of 8. Both wait until they are done.
void write_cuda_words(std::byte* data, int64_t bytes, uint64_t seed);
// How many words are not what write_cuda_words put there.
int64_t count_wrong_cuda_words(const std::byte* data, int64_t bytes, uint64_t seed);

}  // namespace quire
