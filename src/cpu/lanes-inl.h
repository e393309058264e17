// Sixteen float32 lanes, whatever the width of the machine, and what is computed on them.
//
// Per-target code: included by kernel files inside Highway's foreach_target, once a target. Every
// reduction of a row goes through these 16 lanes in one order (lane l takes values l, l + 16, ...;
// then the tree of `sum_of_four`), so that AVX2 and AVX-512 machines give the same bits.

#if defined(QUIRE_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_CPU_LANES_INL_H_
#undef QUIRE_CPU_LANES_INL_H_
#else
#define QUIRE_CPU_LANES_INL_H_
#endif

#include "tensor/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {

using namespace quire::HWY_NAMESPACE;  // what tensor/vector-inl.h has

// 16 lanes.
struct Lanes {
  Vec part[kParts];
};

HWY_INLINE Lanes zero_lanes() {
  Lanes out;
  for (int p = 0; p < kParts; ++p) out.part[p] = hn::Zero(F32());
  return out;
}

// One block of four lanes of each of a, b, c, d, summed: (x0 + x2) + (x1 + x3), side by side.
HWY_INLINE Vec sum_blocks(Vec a, Vec b, Vec c, Vec d) {
  const F32 f32;
  const hn::RepartitionToWide<F32> f64;
  const Vec ab = hn::Add(hn::InterleaveLower(f32, a, b), hn::InterleaveUpper(f32, a, b));
  const Vec cd = hn::Add(hn::InterleaveLower(f32, c, d), hn::InterleaveUpper(f32, c, d));
  const auto wide_ab = hn::BitCast(f64, ab);
  const auto wide_cd = hn::BitCast(f64, cd);
  return hn::Add(hn::BitCast(f32, hn::InterleaveLower(f64, wide_ab, wide_cd)),
                 hn::BitCast(f32, hn::InterleaveUpper(f64, wide_ab, wide_cd)));
}

// The sums of four times 16 lanes: blocks of four first, then (block 0 + block 2) +
// (block 1 + block 3).
HWY_INLINE hn::Vec128<float> sum_of_four(const Lanes& a, const Lanes& b, const Lanes& c,
                                         const Lanes& d) {
#if HWY_MAX_BYTES >= 64
  const hn::Half<F32> half;
  const hn::Half<hn::Half<F32>> quarter;
  const Vec sums = sum_blocks(a.part[0], b.part[0], c.part[0], d.part[0]);
  const auto pairs = hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums));
  return hn::Add(hn::LowerHalf(quarter, pairs), hn::UpperHalf(quarter, pairs));
#elif HWY_MAX_BYTES >= 32
  const hn::Half<F32> half;
  const Vec pairs = hn::Add(sum_blocks(a.part[0], b.part[0], c.part[0], d.part[0]),
                            sum_blocks(a.part[1], b.part[1], c.part[1], d.part[1]));
  return hn::Add(hn::LowerHalf(half, pairs), hn::UpperHalf(half, pairs));
#else
  const auto block = [&](int p) HWY_ATTR {
    return sum_blocks(a.part[p], b.part[p], c.part[p], d.part[p]);
  };
  return hn::Add(hn::Add(block(0), block(2)), hn::Add(block(1), block(3)));
#endif
}

HWY_INLINE float sum(const Lanes& a) { return hn::GetLane(sum_of_four(a, a, a, a)); }

// e^x with an error below 2 units in the last place: Cody and Waite's reduction, and a polynomial
// of degree 7 (Taylor, |r| <= ln 2 / 2: the first term left out is below 2^-27). Below -87.3 the
// result is 0, above 88.7 infinity; NaN stays.
HWY_INLINE Vec exp(Vec x) {
  const F32 f32;
  const I32 i32;
  const Vec n = hn::Round(hn::Mul(x, hn::Set(f32, 1.44269504F)));
  Vec r = hn::NegMulAdd(n, hn::Set(f32, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(f32, -2.12194440e-4F), r);
  Vec y = hn::Set(f32, 1.0F / 5040);
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F / 720));
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F / 120));
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F / 24));
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F / 6));
  y = hn::MulAdd(y, r, hn::Set(f32, 0.5F));
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F));
  y = hn::MulAdd(y, r, hn::Set(f32, 1.0F));
  // 2^n in two steps, so that each factor is a normal number.
  const auto exponent = hn::ConvertTo(i32, n);
  const auto first = hn::ShiftRight<1>(exponent);
  const auto second = hn::Sub(exponent, first);
  const auto power = [&](hn::Vec<I32> k) HWY_ATTR {
    return hn::BitCast(f32, hn::ShiftLeft<23>(hn::Add(k, hn::Set(i32, 127))));
  };
  y = hn::Mul(hn::Mul(y, power(first)), power(second));
  y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(f32, -87.3F)), y);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(f32, 88.72F)), hn::Inf(f32), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled once a target
