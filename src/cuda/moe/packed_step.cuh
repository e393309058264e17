// A warp's view of packed weights: one step of a tile in registers, and its products.
#pragma once

#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/packed_layout.h"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"

namespace quire::cuda {

// Weights pass once: they leave the second-level cache before activations do.
__device__ inline uint64_t pass_once_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline uint4 load_once(const std::byte* at, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at), "l"(policy));
  return v;
}

__device__ inline float2 load_once_2f(const std::byte* at, uint64_t policy) {
  float2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;"
               : "=f"(v.x), "=f"(v.y)
               : "l"(at), "l"(policy));
  return v;
}

template <WeightFormat>
struct PackedStep;

// acc of one tile of 16 rows x 8 tokens; `x[j]` holds inputs 32 j + 8 t + [0, 8) of token g.
using TileSum = float[4];

// silu(gate) * up.
__device__ inline float gated(float gate, float up) {
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

__device__ inline void fold(TileSum& acc, const TileSum& part, float low, float high) {
  acc[0] = fmaf(low, part[0], acc[0]);
  acc[1] = fmaf(low, part[1], acc[1]);
  acc[2] = fmaf(high, part[2], acc[2]);
  acc[3] = fmaf(high, part[3], acc[3]);
}

template <>
struct PackedStep<WeightFormat::int4_group> {
  static constexpr int kPieces = 4;  // of 32 inputs
  uint4 values[2];
  uint4 scales;  // bfloat16: four of row g, four of row g + 8

  __device__ static PackedStep load(const std::byte* step, uint64_t policy) {
    const int lane = lane_of_thread();
    return {{load_once(step + lane * 16, policy), load_once(step + 512 + lane * 16, policy)},
            load_once(step + kStepValueBytes + lane / 4 * 16, policy)};
  }

  // A of one product, each weight 24 more than it is: 16 + nibble, exactly.
  __device__ static MmaA biased(uint32_t word) {
    const uint32_t turned[4] = {__funnelshift_l(word, word, 4), word, word >> 4, word >> 8};
    uint32_t a[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      asm("lop3.b32 %0, %1, 0x00780078, 0x41804180, 0xea;" : "=r"(a[e]) : "r"(turned[e]));
    }
    return {a[0], a[1], a[2], a[3]};
  }

  // The weights themselves: nibble - 8.
  __device__ static MmaA widen(uint32_t word) {
    const MmaA a = biased(word);
    const auto less_24 = [](uint32_t pair) {
      return bits_of(__hfma2(*reinterpret_cast<bf16x2*>(&pair), __float2bfloat162_rn(1.0F),
                             __float2bfloat162_rn(-24.0F)));
    };
    return {less_24(a.a0), less_24(a.a1), less_24(a.a2), less_24(a.a3)};
  }

  struct Piece {
    MmaA first, second;
    float low, high;
  };
  template <int kPiece>
  __device__ uint32_t first_word() const {
    return kPiece % 2 == 0 ? values[kPiece / 2].x : values[kPiece / 2].z;
  }
  template <int kPiece>
  __device__ uint32_t second_word() const {
    return kPiece % 2 == 0 ? values[kPiece / 2].y : values[kPiece / 2].w;
  }
  // Of piece kFirst + i, where kFirst is even.
  template <int kFirst>
  __device__ static float2 scales_of(const uint4& scales, int i) {
    const uint32_t low = kFirst == 0 ? scales.x : scales.y;
    const uint32_t high = kFirst == 0 ? scales.z : scales.w;
    return {__uint_as_float(i == 0 ? low << 16 : low & 0xffff0000U),
            __uint_as_float(i == 0 ? high << 16 : high & 0xffff0000U)};
  }
  template <int kPiece>
  __device__ float2 piece_scales() const {
    return scales_of<kPiece / 2 * 2>(scales, kPiece % 2);
  }
  template <int kPiece>
  __device__ Piece piece() const {
    const float2 scale = piece_scales<kPiece>();
    return {widen(first_word<kPiece>()), widen(second_word<kPiece>()), scale.x, scale.y};
  }

  // The weights times their scales, rounded to bfloat16.
  struct ScaledPiece {
    MmaA first, second;
  };
  __device__ static MmaA times(const MmaA& a, uint32_t low, uint32_t high) {
    const auto product = [](uint32_t pair, uint32_t scale) {
      return bits_of(
          __hmul2(*reinterpret_cast<bf16x2*>(&pair), *reinterpret_cast<bf16x2*>(&scale)));
    };
    return {product(a.a0, low), product(a.a1, high), product(a.a2, low), product(a.a3, high)};
  }
  template <int kPiece>
  __device__ ScaledPiece scaled_piece() const {
    constexpr uint32_t kBoth = kPiece % 2 == 0 ? 0x1010 : 0x3232;
    const uint32_t low = __byte_perm(kPiece < 2 ? scales.x : scales.y, 0, kBoth);
    const uint32_t high = __byte_perm(kPiece < 2 ? scales.z : scales.w, 0, kBoth);
    return {times(widen(first_word<kPiece>()), low, high),
            times(widen(second_word<kPiece>()), low, high)};
  }
};

template <>
struct PackedStep<WeightFormat::fp8_block128> {
  static constexpr int kPieces = 2;
  uint4 values[2];
  float2 scales;  // of rows 0-7 and of rows 8-15

  __device__ static PackedStep load(const std::byte* step, uint64_t policy) {
    const int lane = lane_of_thread();
    return {{load_once(step + lane * 16, policy), load_once(step + 512 + lane * 16, policy)},
            load_once_2f(step + kStepValueBytes, policy)};
  }

  // Bytes 1 and 3 of a word, and bytes 0 and 2, as bfloat16 pairs. The bits of an e4m3, moved under
  // bfloat16's exponent, are its value times 2^-120, subnormals included.
  __device__ static void widen(uint32_t word, uint32_t* odd, uint32_t* even) {
    const bf16x2 scale = __float2bfloat162_rn(0x1p120F);
    const bf16x2 zero = __float2bfloat162_rn(-0.0F);
    uint32_t high = (word >> 4 & 0x07f007f0U) | (word & 0x80008000U);
    uint32_t low = (word << 4 & 0x07f007f0U) | (word << 8 & 0x80008000U);
    *odd = bits_of(__hfma2(*reinterpret_cast<bf16x2*>(&high), scale, zero));
    *even = bits_of(__hfma2(*reinterpret_cast<bf16x2*>(&low), scale, zero));
  }

  struct Piece {
    MmaA first, second;
    float low, high;
  };
  template <int kPiece>
  __device__ Piece piece() const {
    const uint4& v = values[kPiece];
    Piece out;
    widen(v.x, &out.first.a0, &out.first.a2);
    widen(v.y, &out.second.a0, &out.second.a2);
    widen(v.z, &out.first.a1, &out.first.a3);
    widen(v.w, &out.second.a1, &out.second.a3);
    out.low = scales.x;
    out.high = scales.y;
    return out;
  }
};

template <>
struct PackedStep<WeightFormat::bf16> {
  static constexpr int kPieces = 1;
  uint4 values[2];  // of row g, of row g + 8

  __device__ static PackedStep load(const std::byte* step, uint64_t policy) {
    const int lane = lane_of_thread();
    return {{load_once(step + lane * 16, policy), load_once(step + 512 + lane * 16, policy)}};
  }

  struct Piece {
    MmaA first, second;
  };
  template <int>
  __device__ Piece piece() const {
    return {{values[0].x, values[1].x, values[0].y, values[1].y},
            {values[0].z, values[1].z, values[0].w, values[1].w}};
  }
};

// A lane's part of a step that was copied to shared memory as it is.
template <WeightFormat kFormat>
__device__ __forceinline__ PackedStep<kFormat> step_in_shared(const std::byte* step) {
  const int lane = lane_of_thread();
  PackedStep<kFormat> out;
  out.values[0] = *reinterpret_cast<const uint4*>(step + lane * 16);
  out.values[1] = *reinterpret_cast<const uint4*>(step + 512 + lane * 16);
  if constexpr (kFormat == WeightFormat::int4_group) {
    out.scales = *reinterpret_cast<const uint4*>(step + kStepValueBytes + lane / 4 * 16);
  }
  if constexpr (kFormat == WeightFormat::fp8_block128) {
    out.scales = *reinterpret_cast<const float2*>(step + kStepValueBytes);
  }
  return out;
}

// The same by its address in shared memory.
template <WeightFormat kFormat>
__device__ __forceinline__ PackedStep<kFormat> step_at(uint32_t step) {
  const auto lane = static_cast<uint32_t>(lane_of_thread());
  PackedStep<kFormat> out;
  out.values[0] = load_shared_128(step + lane * 16);
  out.values[1] = load_shared_128(step + 512 + lane * 16);
  if constexpr (kFormat == WeightFormat::int4_group) {
    out.scales = load_shared_128(step + kStepValueBytes + lane / 4 * 16);
  }
  if constexpr (kFormat == WeightFormat::fp8_block128) {
    const uint2 scales = load_shared_64(step + kStepValueBytes);
    out.scales = {__uint_as_float(scales.x), __uint_as_float(scales.y)};
  }
  return out;
}

}  // namespace quire::cuda
