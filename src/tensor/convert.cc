#include "tensor/convert.h"

#include <cmath>

#include "tensor/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::HWY_NAMESPACE {

namespace {

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

}  // namespace quire::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire {

HWY_EXPORT(bf16_to_float_target);
HWY_EXPORT(float_to_bf16_target);
HWY_EXPORT(fp8_to_float_target);
HWY_EXPORT(float_to_fp8_target);
HWY_EXPORT(int8_to_float_target);
HWY_EXPORT(float_to_int8_target);
HWY_EXPORT(int4_to_float_target);
HWY_EXPORT(largest_magnitude_target);

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

}  // namespace quire
#endif  // HWY_ONCE
