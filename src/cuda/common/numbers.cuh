// The core types of tensor/dtype.h as device code reads and writes them. Same bits, same rounding.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace quire::cuda {

using bf16 = __nv_bfloat16;
using bf16x2 = __nv_bfloat162;

static_assert(sizeof(bf16) == sizeof(Bf16));

inline bf16* device_type(Bf16* p) { return reinterpret_cast<bf16*>(p); }
inline const bf16* device_type(const Bf16* p) { return reinterpret_cast<const bf16*>(p); }

// The e4m3 nearest to x, ties to even, saturated at 448; NaN gives 0x7f with the sign of x.
__device__ inline uint8_t to_e4m3(float x) {
  if (isnan(x)) return static_cast<uint8_t>(__float_as_uint(x) >> 24 & 0x80U) | 0x7fU;
  return static_cast<uint8_t>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}

__device__ inline float from_e4m3(uint8_t bits) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(bits, __NV_E4M3);
  return __half2float(__half(half));
}

// Four e4m3, lowest byte first, as bfloat16 pairs: exact.
__device__ inline void e4m3x4_to_bf16(uint32_t four, bf16x2* low, bf16x2* high) {
  const __half2_raw a = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(four), __NV_E4M3);
  const __half2_raw b = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(four >> 16), __NV_E4M3);
  *low = __float22bfloat162_rn(__half22float2(__half2(a)));
  *high = __float22bfloat162_rn(__half22float2(__half2(b)));
}

// The two e4m3 in the high bytes of the halves of `x` (their low bytes are zero) as a bfloat16
// pair, exactly, denormals included, without a conversion instruction: the exponent's 4 bits and
// the 3 of the mantissa go where bfloat16 has them, and the product makes up for the difference of
// the biases, 127 - 7. NaN, which no weight is, becomes 480.
__device__ inline bf16x2 e4m3_high_bytes_to_bf16(uint32_t x) {
  uint32_t moved = (x >> 4 & 0x07f007f0U) | (x & 0x80008000U);
  const bf16x2 factor =
      __halves2bfloat162(__ushort_as_bfloat16(0x7b80), __ushort_as_bfloat16(0x7b80));
  return __hmul2(*reinterpret_cast<bf16x2*>(&moved), factor);  // 2^120
}

// scale of a group whose largest magnitude is `amax` (docs/formats/kv_page.md; ops/linear.h).
__device__ inline float e4m3_scale(float amax) {
  return amax == 0.0F ? 1.0F : __fdiv_rn(amax, kFp8Max);
}

__device__ inline uint32_t bits_of(bf16x2 x) { return *reinterpret_cast<uint32_t*>(&x); }

}  // namespace quire::cuda
