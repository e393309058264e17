// Random numbers with a seed: the same seed gives the same stream on every machine.
// Not for secrets: keys and nonces that must not be guessed come from `fill_secure_random`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace quire {

// One step of SplitMix64: a bijective mix of 64 bits. Steele, Lea, Flood 2014, "Fast splittable
// pseudorandom number generators", figure 13.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// A stream of SplitMix64.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next_u64() {
    const uint64_t out = mix64(state_);
    state_ += 0x9e3779b97f4a7c15U;
    return out;
  }

  // Uniform in [0, 1), 24 bits.
  constexpr float next_float() { return static_cast<float>(next_u64() >> 40) * 0x1p-24F; }

  // Uniform in [0, bound), bound > 0, by multiply-high. The bias is below bound / 2^64.
  constexpr uint64_t next_below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(next_u64()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

// A counter-based draw in [0, 1): a pure function of seed and position, so that a token sampled
// again after preemption, or at another place in a batch, gets the same number. 53 bits.
constexpr double counter_uniform(uint64_t seed, uint64_t position, uint64_t stream = 0) {
  const uint64_t bits = mix64(mix64(seed ^ mix64(stream)) ^ position);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Bytes from the operating system. Fails only where the system has none.
Status fill_secure_random(std::span<std::byte> out);

}  // namespace quire
