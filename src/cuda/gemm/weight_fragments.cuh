// Quantised weights in shared memory as the register operand of a warpgroup's products: exact
// bfloat16 of what is stored, scales left out.
//
// Rows lie as the copy engine puts them (common/tensor_map.h): 128 bytes of e4m3, or 64 bytes of
// 4-bit weights, 128 inputs each. A lane reads rows g and g + 8 of sixteen that begin at a multiple
// of 16, where g = lane / 4, from addresses (ptx/shared_address.cuh) that differ by constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"

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

// Where the lane reads sixteen rows from: the other steps are an exclusive or away.
__device__ inline uint32_t e4m3_lane_address(uint32_t rows) {
  const int lane = lane_of_thread();
  return rows + static_cast<uint32_t>(lane / 4 * (kE4m3RowBytes + 16) + 2 * (lane % 4));
}

// Inputs 16 * step .. 16 * step + 15.
__device__ inline MmaA e4m3_fragment(uint32_t lane_address, int step) {
  const uint32_t at = lane_address ^ static_cast<uint32_t>(step << 4);
  constexpr int kHigh = 8 * kE4m3RowBytes;
  return {e4m3_pair(load_shared_16(at)), e4m3_pair(load_shared_16(at + kHigh)),
          e4m3_pair(load_shared_16(at + 8)), e4m3_pair(load_shared_16(at + kHigh + 8))};
}

// 32 inputs of both rows, as stored: of a group with one scale.
struct Int4Group {
  uint4 low, high;
};

__device__ inline uint32_t int4_lane_address(uint32_t rows) {
  const int g = lane_of_thread() / 4;
  return rows + static_cast<uint32_t>(g * kInt4RowBytes + (g / 2 << 4));
}

__device__ inline Int4Group int4_group(uint32_t lane_address, int group) {
  const uint32_t at = lane_address ^ static_cast<uint32_t>(group << 4);
  return {load_shared_128(at), load_shared_128(at + 8 * kInt4RowBytes)};
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
