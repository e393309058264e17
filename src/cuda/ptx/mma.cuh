// The tensor-core instructions of a single warp, and the loads of their operands.
//
// Lane l of a warp is g = l / 4, t = l % 4. An m16n8k16 product D[16, 8] += A[16, 16] B[16, 8]
// holds
//   a0: A[g][2t, 2t+1]  a1: A[g+8][2t, 2t+1]  a2: A[g][2t+8, 2t+9]  a3: A[g+8][2t+8, 2t+9]
//   b0: B[2t, 2t+1][g]  b1: B[2t+8, 2t+9][g]
//   d0, d1: D[g][2t, 2t+1]  d2, d3: D[g+8][2t, 2t+1]
// A sum over k does not care in which order k is numbered, as long as A and B agree: kernels use it
// to give every lane contiguous values. Source: PTX ISA 9.0, 9.7.14 "mma.sync.aligned.m16n8k16".
#pragma once

#include <cstdint>

namespace quire::cuda {

struct MmaA {
  uint32_t a0, a1, a2, a3;  // pairs of bfloat16, or of float16
};

// d += A B, products exact, sums in float32.
__device__ inline void mma_bf16(float (&d)[4], const MmaA& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "r"(b0), "r"(b1));
}

__device__ inline void mma_f16(float (&d)[4], const MmaA& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "r"(b0), "r"(b1));
}

// Four 8x8 tiles of 16-bit values from shared memory. Lane l gives the address of row l % 8 of
// tile l / 8 (16 bytes, aligned); register i receives tile i.
__device__ inline MmaA load_tiles(const void* shared) {
  MmaA out;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.a0), "=r"(out.a1), "=r"(out.a2), "=r"(out.a3)
               : "r"(address)
               : "memory");
  return out;
}

// d = A B + c.
__device__ inline void mma_bf16(float (&d)[4], const MmaA& a, uint32_t b0, uint32_t b1,
                                const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// Four 8x8 tiles of 16-bit values from shared memory, transposed. Lane l gives the address of row
// l % 8 of tile l / 8 (16 bytes, aligned); register i receives tile i.
__device__ inline MmaA load_transposed(const void* shared) {
  MmaA out;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.a0), "=r"(out.a1), "=r"(out.a2), "=r"(out.a3)
               : "r"(address)
               : "memory");
  return out;
}

// The other way: what lane l's register i holds of tile i (as d0, d1 above) goes to shared memory,
// transposed. Lane l gives the address of row l % 8 of tile l / 8 (16 bytes, aligned).
__device__ inline void store_transposed(void* shared, const uint32_t (&tiles)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
      : "memory");
}

}  // namespace quire::cuda
