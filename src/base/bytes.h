// Little-endian integers in byte buffers, and sizes as people read them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "base/check.h"

namespace quire {

static_assert(std::endian::native == std::endian::little, "formats are read in place");

// Reads a T at `offset`. The caller has checked the range; a miss is a programmer error.
template <class T>
requires std::is_trivially_copyable_v<T> T load_le(std::span<const std::byte> bytes,
                                                   size_t offset) {
  CHECK(offset <= bytes.size() && sizeof(T) <= bytes.size() - offset);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
requires std::is_trivially_copyable_v<T>
void store_le(std::span<std::byte> bytes, size_t offset, const T& value) {
  CHECK(offset <= bytes.size() && sizeof(T) <= bytes.size() - offset);
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int64_t div_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The product of two non-negative sizes, or false when it does not fit in 63 bits.
inline bool checked_product(int64_t a, int64_t b, int64_t* out) {
  return !__builtin_mul_overflow(a, b, out) && *out >= 0;
}

}  // namespace quire
