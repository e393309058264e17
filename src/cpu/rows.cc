#include "cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {

namespace {

constexpr int64_t kPage = 64;  // tokens of a softmax page

HWY_INLINE Vec one_plus_exp(Vec x) { return hn::Add(hn::Set(F32(), 1.0F), exp(x)); }

HWY_INLINE Vec silu(Vec x) { return hn::Div(x, one_plus_exp(hn::Neg(x))); }

}  // namespace

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
