// The asynchronous products of a warpgroup (wgmma) that gemm/ uses: D[64, 64] += A[64, 16] B[16,
// 64] with both operands along k, A from shared memory or from registers.
//
// In shared memory a row (of A, or a column of B) is 64 values of k, 128 bytes; its 16-byte piece c
// lies at c ^ (row % 8), and eight rows begin at a multiple of 1,024 bytes: the hardware's 128-byte
// swizzle. What ordinary stores and cp.async wrote there must be fenced first. Warp w of the four
// holds rows 16w .. 16w + 15 of A and D, each as mma.cuh says of an m16n8k16 product; values 4j ..
// 4j + 3 of D are columns 8j .. 8j + 7. Source: PTX ISA 9.0, 9.7.15 "wgmma".
#pragma once

#include <cstdint>

#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

// Where piece `piece` of a row lies, in bytes from the first row.
__device__ inline uint32_t swizzled_piece(int row, int piece) {
  return static_cast<uint32_t>(row * 128 + ((piece ^ (row & 7)) << 4));
}

// 64 rows at a shared address, of which `step` chooses 16 values of k.
__device__ inline uint64_t operand_along_k(uint32_t address, int step) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnused = uint64_t{1} << 16;  // the other stride, of no effect when swizzled
  return kSwizzle128 | kEightRows | kUnused |
         ((address + static_cast<uint32_t>(step) * 32) & 0x3ffffU) >> 4;
}

// This thread's writes to shared memory come before what tensor cores read behind a barrier.
__device__ inline void fence_for_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Before the first product that reads registers written since the last one.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the products that were started and returns when they are done.
__device__ inline void finish_products(float (&d)[32]) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // They wrote these behind the compiler's back: no use moves to before this.
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define QUIRE_D8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ inline void multiply_64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : QUIRE_D8(0), QUIRE_D8(8), QUIRE_D8(16), QUIRE_D8(24)
      : "l"(a), "l"(b));
}

__device__ inline void multiply_64(float (&d)[32], const MmaA& a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : QUIRE_D8(0), QUIRE_D8(8), QUIRE_D8(16), QUIRE_D8(24)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b));
}

#undef QUIRE_D8

}  // namespace quire::cuda
