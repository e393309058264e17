// Sixteen float32 lanes, whatever the width of the machine: how values get there and back.
//
// Per-target code: included by vector code inside Highway's foreach_target, once a target.

#if defined(QUIRE_TENSOR_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_TENSOR_VECTOR_INL_H_
#undef QUIRE_TENSOR_VECTOR_INL_H_
#else
#define QUIRE_TENSOR_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace quire::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using I8 = hn::Rebind<int8_t, F32>;
using Vec = hn::Vec<F32>;

constexpr int64_t kLanes = 16;
constexpr int64_t kWidth = HWY_MAX_BYTES >= 64 ? 16 : HWY_MAX_BYTES / 4;  // lanes of a register
constexpr int kParts = static_cast<int>(kLanes / kWidth);                 // registers of 16 lanes

// Values as float32 from where they are stored.
HWY_INLINE Vec load(const float* x) { return hn::LoadU(F32(), x); }
HWY_INLINE Vec load(const Bf16* x) {
  const auto bits = hn::PromoteTo(U32(), hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(x)));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
}

// bf16 bits in the low half of each lane: nearest even, NaN stays NaN; as to_bf16 does.
HWY_INLINE hn::Vec<U32> bf16_bits(Vec x) {
  const U32 u32;
  const auto bits = hn::BitCast(u32, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(u32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u32, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(u32, 0x40));
  return hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(x)), quiet, rounded);
}

HWY_INLINE void store(Vec x, float* out) { hn::StoreU(x, F32(), out); }
HWY_INLINE void store(Vec x, Bf16* out) {
  const auto narrow = hn::DemoteTo(U16(), hn::BitCast(I32(), bf16_bits(x)));
  hn::StoreU(narrow, U16(), reinterpret_cast<uint16_t*>(out));
}

// x rounded to bf16, as float32.
HWY_INLINE Vec round_to_bf16(Vec x) { return hn::BitCast(F32(), hn::ShiftLeft<16>(bf16_bits(x))); }

// The end of a row that fills no register, padded with zeros.
template <class T>
struct Tail {
  T values[kLanes] = {};
  Tail() = default;
  Tail(const T* x, int64_t n) { std::copy_n(x, n, values); }
  void copy_to(T* out, int64_t n) const { std::copy_n(values, n, out); }
};

// Runs body(x, out) on registers: all of [0, n), the end through padded copies.
template <class X, class Out, class Body>
HWY_INLINE void map(const X* x, int64_t n, Out* out, Body body) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(body(load(x + i)), out + i);
  if (i == n) return;
  const Tail<X> tail(x + i, n - i);
  Tail<Out> result;
  store(body(load(tail.values)), result.values);
  result.copy_to(out + i, n - i);
}

template <class X, class Out, class Body>
HWY_INLINE void map(const X* x, const X* y, int64_t n, Out* out, Body body) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(body(load(x + i), load(y + i)), out + i);
  if (i == n) return;
  const Tail<X> tail_x(x + i, n - i);
  const Tail<X> tail_y(y + i, n - i);
  Tail<Out> result;
  store(body(load(tail_x.values), load(tail_y.values)), result.values);
  result.copy_to(out + i, n - i);
}

// Runs body(values, part) on 16 lanes at a time; the end is padded with zeros.
template <class X, class Body>
HWY_INLINE void each_16(const X* x, int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int p = 0; p < kParts; ++p) body(load(x + i + p * kWidth), p);
  }
  if (i == n) return;
  const Tail<X> tail(x + i, n - i);
  for (int p = 0; p < kParts; ++p) body(load(tail.values + p * kWidth), p);
}

}  // namespace quire::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled once a target
