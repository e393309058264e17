// Products of bfloat16 tiles by a warpgroup (wgmma), and how their operands lie in shared memory.
//
// A tile is panels of 64 columns. A row of a panel is 128 bytes; its 16-byte piece c lies at
// c ^ (row % 8) (the hardware's 128-byte swizzle), so that neither a row nor a column of pieces
// meets one bank. Panels begin at multiples of 1,024 bytes. The same bytes serve as an operand
// whose sum runs along rows (queries and keys) or down columns (values).
//
// Lane l of warp w of the warpgroup (g = l / 4, t = l % 4) holds of D[64, n], for j < n / 8:
//   d[4j], d[4j + 1]: D[16w + g][8j + 2t, + 1]    d[4j + 2], d[4j + 3]: D[16w + g + 8][the same]
// and of A[64, 16] in registers what MmaA says, of rows 16w .. 16w + 15.
// Source: PTX ISA 9.0, 9.7.15 "wgmma"; matrix descriptors in 9.7.15.5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ptx/mma.cuh"

namespace quire::cuda {

inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 128;

// Where 16-byte piece `piece` of a panel's row lies, in bytes from the panel's beginning.
__device__ inline int swizzled(int row, int piece) {
  return row * kPanelRowBytes + ((piece ^ (row & 7)) << 4);
}

// An operand whose sum runs along rows: 16 columns from `at`, which lies in the first row.
__device__ inline uint64_t operand_of_rows(const std::byte* at) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  return uint64_t{(address & 0x3ffffU) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

// An operand whose sum runs down columns: 16 rows from `at`, the beginning of a row of the first
// panel; the next 64 columns lie `panel_bytes` further.
__device__ inline uint64_t operand_of_columns(const std::byte* at, uint32_t panel_bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  return uint64_t{(address & 0x3ffffU) >> 4} | uint64_t{panel_bytes >> 4} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// Before the first product that reads registers or memory written since the last one.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kGroups committed groups run.
template <int kGroups>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Products read and write these registers behind the compiler's back: no use of them moves past.
template <int kValues>
__device__ inline void wgmma_hold(float (&d)[kValues]) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

enum class Sum : int { starts = 0, goes_on = 1 };  // d = A B, or d += A B

#define QUIRE_WGMMA_D8(i)                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

// A[64, 16] and B[n, 16] from shared memory, both operand_of_rows.
__device__ inline void wgmma_m64n64k16(float (&d)[32], uint64_t a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned"
      ".m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24)
      : "l"(a), "l"(b), "r"(static_cast<int>(sum)));
}
__device__ inline void wgmma_m64n128k16(float (&d)[64], uint64_t a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned"
      ".m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24),
        QUIRE_WGMMA_D8(32), QUIRE_WGMMA_D8(40), QUIRE_WGMMA_D8(48), QUIRE_WGMMA_D8(56)
      : "l"(a), "l"(b), "r"(static_cast<int>(sum)));
}

// How B lies in shared memory: operand_of_rows, or operand_of_columns.
enum class OperandOf : int { rows = 0, columns = 1 };

// A[64, 16] from registers.
template <OperandOf kB>
__device__ inline void wgmma_m64n128k16(float (&d)[64], const MmaA& a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned"
      ".m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24),
        QUIRE_WGMMA_D8(32), QUIRE_WGMMA_D8(40), QUIRE_WGMMA_D8(48), QUIRE_WGMMA_D8(56)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b), "r"(static_cast<int>(sum)),
        "n"(static_cast<int>(kB)));
}

// A[64, 16] from registers, B[16, n] from shared memory: operand_of_columns.
__device__ inline void wgmma_m64n256k16(float (&d)[128], const MmaA& a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %133, 0; wgmma.mma_async.sync.aligned"
      ".m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127}, "
      "{%128, %129, %130, %131}, %132, p, 1, 1, 1;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24),
        QUIRE_WGMMA_D8(32), QUIRE_WGMMA_D8(40), QUIRE_WGMMA_D8(48), QUIRE_WGMMA_D8(56),
        QUIRE_WGMMA_D8(64), QUIRE_WGMMA_D8(72), QUIRE_WGMMA_D8(80), QUIRE_WGMMA_D8(88),
        QUIRE_WGMMA_D8(96), QUIRE_WGMMA_D8(104), QUIRE_WGMMA_D8(112), QUIRE_WGMMA_D8(120)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b), "r"(static_cast<int>(sum)));
}

// A[64, 16] from registers, B[n, 16] from shared memory: operand_of_rows.
__device__ inline void wgmma_of_rows(float (&d)[16], const MmaA& a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned"
      ".m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, 0;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b), "r"(static_cast<int>(sum)));
}
__device__ inline void wgmma_of_rows(float (&d)[32], const MmaA& a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned"
      ".m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b), "r"(static_cast<int>(sum)));
}
__device__ inline void wgmma_of_rows(float (&d)[48], const MmaA& a, uint64_t b, Sum sum) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %53, 0; wgmma.mma_async.sync.aligned"
      ".m64n96k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 0;}"
      : QUIRE_WGMMA_D8(0), QUIRE_WGMMA_D8(8), QUIRE_WGMMA_D8(16), QUIRE_WGMMA_D8(24),
        QUIRE_WGMMA_D8(32), QUIRE_WGMMA_D8(40)
      : "r"(a.a0), "r"(a.a1), "r"(a.a2), "r"(a.a3), "l"(b), "r"(static_cast<int>(sum)));
}
__device__ inline void wgmma_of_rows(float (&d)[64], const MmaA& a, uint64_t b, Sum sum) {
  wgmma_m64n128k16<OperandOf::rows>(d, a, b, sum);
}

#undef QUIRE_WGMMA_D8

}  // namespace quire::cuda
