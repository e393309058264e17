// Quantised weights in shared memory as the register operand of a warpgroup's products: exact
// bfloat16 of what is stored, scales left out.
//
// Rows lie as the copy engine puts them (common/tensor_map.h): 128 bytes of e4m3, or 64 bytes of
// 4-bit weights, 128 inputs each. `low` is the first byte of the lane's first row, 8 rows above its
// second one: rows g and g + 8 of sixteen that begin at a multiple of 16, where g = lane / 4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

inline constexpr int kE4m3RowBytes = 128;
inline constexpr int kInt4RowBytes = 64;

// Two e4m3, lowest byte first, as a bfloat16 pair, exactly. Each byte is widened with its sign, so
// that one shift brings the exponent's 4 bits and the mantissa's 3 to where bfloat16 has them; the
// product makes up for the difference of the biases, 127 - 7. NaN, which no weight is, becomes 480.
__device__ inline uint32_t e4m3_pair(uint32_t two) {
  uint32_t wide;
  asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(wide) : "r"(two));
  uint32_t moved = wide << 4 & 0x87f087f0U;
  const bf16x2 factor =
      __halves2bfloat162(__ushort_as_bfloat16(0x7b80), __ushort_as_bfloat16(0x7b80));  // 2^120
  return bits_of(__hmul2(*reinterpret_cast<bf16x2*>(&moved), factor));
}

// Inputs 16 * step .. 16 * step + 15.
__device__ inline MmaA e4m3_fragment(const std::byte* low, int step) {
  const int lane = lane_of_thread();
  const std::byte* at = low + ((step ^ (lane / 4)) << 4) + 2 * (lane % 4);
  const auto pair = [&](int offset) {
    return e4m3_pair(*reinterpret_cast<const uint16_t*>(at + offset));
  };
  constexpr int kHigh = 8 * kE4m3RowBytes;
  return {pair(0), pair(kHigh), pair(8), pair(kHigh + 8)};
}

// 32 inputs of both rows, as stored: of a group with one scale.
struct Int4Group {
  uint4 low, high;
};

__device__ inline Int4Group int4_group(const std::byte* low, int group) {
  const std::byte* at = low + ((group ^ (lane_of_thread() / 8)) << 4);
  return {*reinterpret_cast<const uint4*>(at),
          *reinterpret_cast<const uint4*>(at + 8 * kInt4RowBytes)};
}

// Of eight weights those of byte lane % 4, inputs 2 * (lane % 4) and the next.
__device__ inline uint32_t int4_pair(uint32_t eight) {
  const auto t = static_cast<uint32_t>(lane_of_thread() % 4);
  const uint32_t nibbles = __byte_perm(eight, eight >> 4, 0x0400 + t * 0x0101);
  // 128 + nibble as bfloat16 is 0x4300 | nibble; less 136 it is nibble - 8, exactly.
  uint32_t biased = (nibbles & 0x000f000fU) | 0x43004300U;
  return bits_of(__hsub2(*reinterpret_cast<bf16x2*>(&biased), __float2bfloat162_rn(136.0F)));
}

// Inputs 16 * step .. 16 * step + 15 of the group's 32.
__device__ inline MmaA int4_fragment(const Int4Group& group, int step) {
  const auto [low_first, low_second] =
      step == 0 ? make_uint2(group.low.x, group.low.y) : make_uint2(group.low.z, group.low.w);
  const auto [high_first, high_second] =
      step == 0 ? make_uint2(group.high.x, group.high.y) : make_uint2(group.high.z, group.high.w);
  return {int4_pair(low_first), int4_pair(high_first), int4_pair(low_second),
          int4_pair(high_second)};
}

}  // namespace quire::cuda
