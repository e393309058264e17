// How long lines stay in the second-level cache: hints that loads, stores and copies carry.
//
// What `createpolicy.fractional.L2::...` gives, as constants, which take no registers. Sources: PTX
// ISA 9.0, "createpolicy" and "Cache Eviction Priority Hints"; the values: CUTLASS,
// include/cute/arch/copy_sm90_tma.hpp, TMA::CacheHintSm90.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;  // read once: before anything else
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;   // read again soon: after anything else

__device__ inline void store_float4(float4* at, const float4& v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                   __cvta_generic_to_global(at)),
               "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy)
               : "memory");
}

// Not through the first-level cache, as __ldcg: other multiprocessors wrote it.
__device__ inline float4 load_float4(const float4* at, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.cg.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(__cvta_generic_to_global(at)), "l"(policy)
               : "memory");
  return v;
}

}  // namespace quire::cuda
