#include "cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {

namespace {

constexpr int64_t kPage = 64;  // tokens of a softmax page

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

HWY_INLINE Vec one_plus_exp(Vec x) { return hn::Add(hn::Set(F32(), 1.0F), exp(x)); }

HWY_INLINE Vec silu(Vec x) { return hn::Div(x, one_plus_exp(hn::Neg(x))); }

// Bits of e4m3 in the low byte of each lane. Below 2^-6 there is no implicit one: 2 v - 2^-6 takes
// it away, exactly.
HWY_INLINE Vec fp8_value(hn::Vec<U32> bits) {
  const F32 f32;
  const U32 u32;
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7f));
  const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(u32, 0x80)));
  const auto moved = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(u32, 120U << 23));
  const Vec value = hn::BitCast(f32, moved);
  const Vec subnormal = hn::Sub(hn::Add(value, value), hn::Set(f32, 0x1p-6F));
  const auto is_subnormal = hn::RebindMask(f32, hn::Lt(magnitude, hn::Set(u32, 8)));
  const auto is_nan = hn::RebindMask(f32, hn::Eq(magnitude, hn::Set(u32, 0x7f)));
  const Vec absolute = hn::IfThenElse(is_subnormal, subnormal, value);
  const Vec finite = hn::Or(absolute, hn::BitCast(f32, sign));
  return hn::IfThenElse(is_nan, hn::NaN(f32), finite);
}

// The inverse, rounded: the steps of to_fp8_e4m3 (tensor/dtype.cc), with selects for its branches.
HWY_INLINE hn::Vec<U32> fp8_bits(Vec x) {
  const F32 f32;
  const U32 u32;
  const auto bits = hn::BitCast(u32, x);
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(u32, 0x80));
  const auto magnitude = hn::And(bits, hn::Set(u32, 0x7fffffff));
  const Vec size = hn::BitCast(f32, magnitude);
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(u32, 1));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(u32, 0x7ffff)), odd);
  auto code = hn::Sub(hn::ShiftRight<20>(rounded), hn::Set(u32, 120U << 3));
  const auto shifted = hn::BitCast(u32, hn::Add(size, hn::Set(f32, 0x1.8p14F)));
  const auto is_subnormal = hn::RebindMask(u32, hn::Lt(size, hn::Set(f32, 0x1p-6F)));
  code = hn::IfThenElse(is_subnormal, hn::And(shifted, hn::Set(u32, 0xff)), code);
  const auto is_large = hn::RebindMask(u32, hn::Ge(size, hn::Set(f32, kFp8Max)));
  code = hn::IfThenElse(is_large, hn::Set(u32, 0x7e), code);
  code = hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(x)), hn::Set(u32, 0x7f), code);
  return hn::Or(code, sign);
}

HWY_INLINE hn::Vec<U32> load_bytes(const uint8_t* x) {
  return hn::PromoteTo(U32(), hn::LoadU(U8(), x));
}

}  // namespace

void bf16_to_float_target(const Bf16* x, int64_t n, float* out) {
  map(x, n, out, [](Vec v) HWY_ATTR { return v; });
}

void float_to_bf16_target(const float* x, int64_t n, Bf16* out) {
  map(x, n, out, [](Vec v) HWY_ATTR { return v; });
}

void fp8_to_float_target(const Fp8E4m3* x, int64_t n, float scale, float* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(x);
  const Vec factor = hn::Set(F32(), scale);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    store(hn::Mul(fp8_value(load_bytes(bytes + i)), factor), out + i);
  }
  for (; i < n; ++i) out[i] = quire::to_float(x[i]) * scale;
}

void float_to_fp8_target(const float* x, int64_t n, float scale, Fp8E4m3* out) {
  const Vec divisor = hn::Set(F32(), scale);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const auto bits = hn::BitCast(I32(), fp8_bits(hn::Div(load(x + i), divisor)));
    hn::StoreU(hn::DemoteTo(U8(), bits), U8(), bytes + i);
  }
  for (; i < n; ++i) out[i] = to_fp8_e4m3(x[i] / scale);
}

void int8_to_float_target(const int8_t* x, int64_t n, float scale, float* out) {
  const Vec factor = hn::Set(F32(), scale);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const auto integers = hn::PromoteTo(I32(), hn::LoadU(I8(), x + i));
    store(hn::Mul(hn::ConvertTo(F32(), integers), factor), out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<float>(x[i]) * scale;
}

void float_to_int8_target(const float* x, int64_t n, float factor, int8_t* out) {
  const Vec factors = hn::Set(F32(), factor);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const auto integers = hn::NearestInt(hn::Mul(load(x + i), factors));
    hn::StoreU(hn::DemoteTo(I8(), integers), I8(), out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<int8_t>(std::lrint(x[i] * factor));
}

void int4_to_float_target(const uint8_t* x, const Bf16* scales, int64_t group, int64_t n,
                          float* out) {
  const F32 f32;
  const U32 u32;
  const I32 i32;
  for (int64_t begin = 0; begin < n; begin += group) {
    const float scale = to_float(scales[begin / group]);
    const Vec factor = hn::Set(f32, scale);
    const auto value = [&](hn::Vec<U32> nibble) HWY_ATTR {
      const auto centred = hn::Sub(hn::BitCast(i32, nibble), hn::Set(i32, 8));
      return hn::Mul(hn::ConvertTo(f32, centred), factor);
    };
    int64_t i = begin;
    for (; i + 2 * kWidth <= begin + group; i += 2 * kWidth) {
      const auto bytes = load_bytes(x + i / 2);
      hn::StoreInterleaved2(value(hn::And(bytes, hn::Set(u32, 15))),
                            value(hn::ShiftRight<4>(bytes)), f32, out + i);
    }
    for (; i < begin + group; i += 2) {
      out[i] = static_cast<float>((x[i / 2] & 15) - 8) * scale;
      out[i + 1] = static_cast<float>((x[i / 2] >> 4) - 8) * scale;
    }
  }
}

float largest_magnitude_target(const float* x, int64_t n) {
  Vec most = hn::Zero(F32());
  each_16(x, n, [&](Vec v, int) HWY_ATTR {
    const Vec size = hn::Abs(v);
    most = hn::IfThenElse(hn::Gt(size, most), size, most);  // NaN is not greater
  });
  return hn::GetLane(hn::MaxOfLanes(F32(), most));
}

float largest_target(const float* x, int64_t n) {
  const F32 f32;
  Vec most = hn::Set(f32, x[0]);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) most = hn::Max(most, load(x + i));
  float out = hn::GetLane(hn::MaxOfLanes(f32, most));
  for (; i < n; ++i) out = std::max(out, x[i]);
  return out;
}

double exp_row_target(const float* x, int64_t n, float shift, float factor, float* out) {
  const F32 f32;
  constexpr int64_t kBlock = 4096;  // values whose sum is kept in float32
  const Vec shift_all = hn::Set(f32, shift);
  const Vec factor_all = hn::Set(f32, factor);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    map(x + begin, count, out + begin,
        [&](Vec v) HWY_ATTR { return exp(hn::Mul(hn::Sub(v, shift_all), factor_all)); });
    Lanes lanes = zero_lanes();
    each_16(out + begin, count,
            [&](Vec v, int p) HWY_ATTR { lanes.part[p] = hn::Add(lanes.part[p], v); });
    total += static_cast<double>(sum(lanes));
  }
  return total;
}

void sigmoid_row_target(const float* x, int64_t n, float* out) {
  map(x, n, out,
      [](Vec v) HWY_ATTR { return hn::Div(hn::Set(F32(), 1.0F), one_plus_exp(hn::Neg(v))); });
}

void rms_norm_row_target(const Bf16* x, const Bf16* weight, int64_t n, float eps, Bf16* out) {
  Lanes squares = zero_lanes();
  each_16(x, n,
          [&](Vec v, int p) HWY_ATTR { squares.part[p] = hn::MulAdd(v, v, squares.part[p]); });
  const float mean = sum(squares) / static_cast<float>(n);
  const Vec factor = hn::Set(F32(), 1.0F / std::sqrt(mean + eps));
  map(x, weight, n, out,
      [&](Vec v, Vec w) HWY_ATTR { return hn::Mul(round_to_bf16(hn::Mul(v, factor)), w); });
}

void add_row_target(const Bf16* a, const Bf16* b, int64_t n, Bf16* out) {
  map(a, b, n, out, [](Vec v, Vec w) HWY_ATTR { return hn::Add(v, w); });
}

void silu_mul_bf16(const Bf16* gate, const Bf16* up, int64_t n, Bf16* out) {
  map(gate, up, n, out, [](Vec g, Vec u) HWY_ATTR { return hn::Mul(round_to_bf16(silu(g)), u); });
}

void silu_mul_float(const float* gate, const float* up, int64_t n, float* out) {
  map(gate, up, n, out, [](Vec g, Vec u) HWY_ATTR {
    const Vec gated = round_to_bf16(silu(round_to_bf16(g)));
    return round_to_bf16(hn::Mul(gated, round_to_bf16(u)));
  });
}

void divide_row_target(const float* x, float divisor, int64_t n, Bf16* out) {
  const Vec by = hn::Set(F32(), divisor);
  map(x, n, out, [&](Vec v) HWY_ATTR { return hn::Div(v, by); });
}

void add_weighted_row_target(const float* x, float weight, int64_t n, float* total) {
  const Vec factor = hn::Set(F32(), weight);
  map(x, total, n, total,
      [&](Vec v, Vec t) HWY_ATTR { return hn::MulAdd(round_to_bf16(v), factor, t); });
}

float softmax_page_target(float* scores, int64_t n, float scale, OnlineSoftmax* state) {
  const F32 f32;
  const float kMinusInfinity = -std::numeric_limits<float>::infinity();
  std::fill(scores + n, scores + kPage, kMinusInfinity);
  const Vec scale_all = hn::Set(f32, scale);
  Vec most = hn::Set(f32, kMinusInfinity);
  for (int64_t i = 0; i < kPage; i += kWidth) {
    const Vec score = hn::Mul(load(scores + i), scale_all);
    store(score, scores + i);
    most = hn::Max(most, score);
  }
  // The scale is positive: what is masked stays minus infinity.
  const float before = state->largest;
  state->largest = std::max(before, hn::GetLane(hn::MaxOfLanes(f32, most)));
  const Vec shift = hn::Set(f32, state->largest);
  Lanes lanes = zero_lanes();
  for (int64_t i = 0; i < kPage; i += kLanes) {
    for (int p = 0; p < kParts; ++p) {
      const Vec weight = exp(hn::Sub(load(scores + i + p * kWidth), shift));
      store(weight, scores + i + p * kWidth);
      lanes.part[p] = hn::Add(lanes.part[p], weight);
    }
  }
  const float shrink = hn::GetLane(exp(hn::Set(f32, before - state->largest)));
  state->total = state->total * shrink + sum(lanes);
  return shrink;
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::cpu {

HWY_EXPORT(bf16_to_float_target);
HWY_EXPORT(float_to_bf16_target);
HWY_EXPORT(fp8_to_float_target);
HWY_EXPORT(float_to_fp8_target);
HWY_EXPORT(int8_to_float_target);
HWY_EXPORT(float_to_int8_target);
HWY_EXPORT(int4_to_float_target);
HWY_EXPORT(largest_magnitude_target);
HWY_EXPORT(largest_target);
HWY_EXPORT(exp_row_target);
HWY_EXPORT(sigmoid_row_target);
HWY_EXPORT(rms_norm_row_target);
HWY_EXPORT(add_row_target);
HWY_EXPORT(silu_mul_bf16);
HWY_EXPORT(silu_mul_float);
HWY_EXPORT(divide_row_target);
HWY_EXPORT(add_weighted_row_target);
HWY_EXPORT(softmax_page_target);

void bf16_to_float(const Bf16* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(bf16_to_float_target)(x, n, out);
}
void float_to_bf16(const float* x, int64_t n, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(float_to_bf16_target)(x, n, out);
}
void fp8_to_float(const Fp8E4m3* x, int64_t n, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(fp8_to_float_target)(x, n, scale, out);
}
void float_to_fp8(const float* x, int64_t n, float scale, Fp8E4m3* out) {
  HWY_DYNAMIC_DISPATCH(float_to_fp8_target)(x, n, scale, out);
}
void int8_to_float(const int8_t* x, int64_t n, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(int8_to_float_target)(x, n, scale, out);
}
void float_to_int8(const float* x, int64_t n, float factor, int8_t* out) {
  HWY_DYNAMIC_DISPATCH(float_to_int8_target)(x, n, factor, out);
}
void int4_to_float(const uint8_t* x, const Bf16* scales, int64_t group, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(int4_to_float_target)(x, scales, group, n, out);
}
float largest_magnitude(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(largest_magnitude_target)(x, n);
}
float largest(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(largest_target)(x, n); }
double exp_row(const float* x, int64_t n, float shift, float factor, float* out) {
  return HWY_DYNAMIC_DISPATCH(exp_row_target)(x, n, shift, factor, out);
}
void sigmoid_row(const float* x, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(sigmoid_row_target)(x, n, out);
}
void rms_norm_row(const Bf16* x, const Bf16* weight, int64_t n, float eps, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_row_target)(x, weight, n, eps, out);
}
void rotate_row(const float* cos, const float* sin, int64_t n, Bf16* x) {
  for (int64_t i = 0; i < n; ++i) {
    const float a = to_float(x[2 * i]);
    const float b = to_float(x[2 * i + 1]);
    x[2 * i] = to_bf16(a * cos[i] - b * sin[i]);
    x[2 * i + 1] = to_bf16(b * cos[i] + a * sin[i]);
  }
}
void add_row(const Bf16* a, const Bf16* b, int64_t n, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(add_row_target)(a, b, n, out);
}
void silu_mul_row(const Bf16* gate, const Bf16* up, int64_t n, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(silu_mul_bf16)(gate, up, n, out);
}
void silu_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(silu_mul_float)(gate, up, n, out);
}
void divide_row(const float* x, float divisor, int64_t n, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(divide_row_target)(x, divisor, n, out);
}
void add_weighted_row(const float* x, float weight, int64_t n, float* sum) {
  HWY_DYNAMIC_DISPATCH(add_weighted_row_target)(x, weight, n, sum);
}
float softmax_page(float* scores, int64_t n, float scale, OnlineSoftmax* state) {
  return HWY_DYNAMIC_DISPATCH(softmax_page_target)(scores, n, scale, state);
}

}  // namespace quire::cpu
#endif  // HWY_ONCE
