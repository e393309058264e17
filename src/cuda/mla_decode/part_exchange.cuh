// How blocks of one launch leave each other the sums of their parts: in memory whose every word
// says whether it is there.
//
// A word that is not there is kAbsent, a NaN that no arithmetic gives; who reads a word puts that
// back, as the next launch wants it. So nobody counts parts, no store waits for another, and a word
// is known as soon as it can be seen. Each word has one reader.
#pragma once

#include <cstdint>

namespace quire::cuda {

inline constexpr uint32_t kAbsent = 0xffffffffU;

#ifdef __CUDACC__

__device__ inline uint64_t stay_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Four words as they are now, there or not.
__device__ inline float4 look_at(const float4* at) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(__cvta_generic_to_global(at)), "l"(stay_policy())
               : "memory");
  return v;
}

__device__ inline bool is_there(const float4& v) {
  return __float_as_uint(v.x) != kAbsent && __float_as_uint(v.y) != kAbsent &&
         __float_as_uint(v.z) != kAbsent && __float_as_uint(v.w) != kAbsent;
}

// What was looked at, once all of it is there.
__device__ inline float4 wait_for(const float4* at, float4 v) {
  while (!is_there(v)) v = look_at(at);
  return v;
}

// Puts four words there. One that happens to be kAbsent becomes the NaN below it.
__device__ inline void leave(float4* at, const float4& v) {
  const auto word = [](float x) { return min(__float_as_uint(x), kAbsent - 1); };
  asm volatile("st.relaxed.gpu.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                   __cvta_generic_to_global(at)),
               "r"(word(v.x)), "r"(word(v.y)), "r"(word(v.z)), "r"(word(v.w)), "l"(stay_policy())
               : "memory");
}

// Takes back what was read, by the thread that read it.
__device__ inline void take_back(float4* at) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %1, %1, %1}, %2;" ::"l"(
                   __cvta_generic_to_global(at)),
               "r"(kAbsent), "l"(stay_policy())
               : "memory");
}

#endif

}  // namespace quire::cuda
