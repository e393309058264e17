// How a lane reads eight neighbouring values of a row at any address, as bfloat16 pairs, from each
// format.
#pragma once

#include "cuda/common/numbers.cuh"
#include "ops/weight_matrix.h"

namespace quire::cuda {

inline constexpr int kLaneValues = 8;           // k values of a lane in a chunk
inline constexpr int kChunk = 4 * kLaneValues;  // k values of a chunk: two tensor-core steps

struct Eight {
  uint32_t pair[4];  // (0, 1), (2, 3), (4, 5), (6, 7)
};

__device__ inline uint32_t pair_of(float low, float high) {
  return bits_of(__floats2bfloat162_rn(low, high));
}

// Values [k, k + 8) of a bfloat16 row; those at and past `n` are zero.
__device__ inline Eight load_bf16(const bf16* row, int64_t k, int64_t n) {
  Eight out;
  for (int i = 0; i < 4; ++i) {
    const int64_t at = k + 2 * i;
    const bf16 zero = __ushort_as_bfloat16(0);
    out.pair[i] = bits_of(bf16x2(at < n ? row[at] : zero, at + 1 < n ? row[at + 1] : zero));
  }
  return out;
}

template <WeightFormat kFormat>
__device__ Eight load_weights(const void* row, int64_t k, int64_t n);

template <>
__device__ inline Eight load_weights<WeightFormat::bf16>(const void* row, int64_t k, int64_t n) {
  return load_bf16(static_cast<const bf16*>(row), k, n);
}

template <>
__device__ inline Eight load_weights<WeightFormat::fp8_block128>(const void* row, int64_t k,
                                                                 int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(row) + k;
  uint2 v{0, 0};
  for (int i = 0; i < kLaneValues; ++i) {
    const uint32_t byte = k + i < n ? bytes[i] : 0;
    (i < 4 ? v.x : v.y) |= byte << (8 * (i % 4));
  }
  bf16x2 pair[4];
  e4m3x4_to_bf16(v.x, &pair[0], &pair[1]);
  e4m3x4_to_bf16(v.y, &pair[2], &pair[3]);
  return {{bits_of(pair[0]), bits_of(pair[1]), bits_of(pair[2]), bits_of(pair[3])}};
}

// Rows of 4-bit weights are whole scale groups: k + 8 <= n always.
template <>
__device__ inline Eight load_weights<WeightFormat::int4_group>(const void* row, int64_t k,
                                                               int64_t) {
  const auto* bytes = static_cast<const uint8_t*>(row) + k / 2;
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= uint32_t{bytes[i]} << (8 * i);
  Eight out;
  for (int i = 0; i < 4; ++i) {
    // 128 + nibble as bfloat16 is 0x4300 | nibble; less 136 it is nibble - 8, exactly.
    const uint32_t low = v >> (8 * i) & 0xfU;
    const uint32_t high = v >> (8 * i + 4) & 0xfU;
    uint32_t biased = 0x43004300U | low | high << 16;
    const bf16x2 eight_more = __float2bfloat162_rn(136.0F);
    out.pair[i] = bits_of(__hsub2(*reinterpret_cast<bf16x2*>(&biased), eight_more));
  }
  return out;
}

}  // namespace quire::cuda
