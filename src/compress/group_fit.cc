#include "compress/group_fit.h"

#include <algorithm>
#include <limits>

#include "tensor/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/group_fit.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::HWY_NAMESPACE {

namespace {

// Largest weight over scale, from no clipping at all to where clipping costs more than it gains.
constexpr int kInt4Candidates = 8;
constexpr float kInt4Divisors[kInt4Candidates] = {7, 7.5, 8, 8.5, 9, 9.5, 10, 10.5};
constexpr int kAtOnce = 4;  // of these: what 16 registers hold
constexpr int kLeastSquaresSteps = 2;
// Steps of the e4m3 scale, from the one that maps the largest weight to 6: one finer, and up to the
// one that maps it to 4.
constexpr int kScaleStepFirst = -1;
constexpr int kScaleStepLast = 5;
constexpr int32_t kScaleCodeMax = 0x7e;  // 448
constexpr float kE2m1Max = 6;

HWY_INLINE Vec set(float x) { return hn::Set(F32(), x); }

// Of codes that are neither negative nor NaN; below 8 there is no implicit one.
HWY_INLINE Vec positive_e4m3(hn::Vec<I32> code) {
  const I32 i32;
  const Vec small = hn::Mul(hn::ConvertTo(F32(), code), set(0x1p-9F));
  const auto moved = hn::Add(hn::ShiftLeft<20>(code), hn::Set(i32, 120 << 23));
  const auto is_small = hn::RebindMask(F32(), hn::Lt(code, hn::Set(i32, 8)));
  return hn::IfThenElse(is_small, small, hn::BitCast(F32(), moved));
}

// One register of groups: weights at w, one row of 16 lanes further for each input.
struct Groups {
  const float* w;
  int64_t group;

  HWY_INLINE Vec weight(int64_t i) const { return hn::LoadU(F32(), w + i * kFitLanes); }
  HWY_INLINE Vec largest() const {
    Vec most = hn::Zero(F32());
    for (int64_t i = 0; i < group; ++i) most = hn::Max(most, hn::Abs(weight(i)));
    return most;
  }
};

// An integer format: values that are whole numbers of the scale.
struct Int4Grid {
  HWY_INLINE Vec nearest(Vec x) const { return hn::Max(hn::Min(hn::Round(x), set(7)), set(-8)); }
};

struct E2m1Grid {
  // Spacing is 1/2 below 2, 1 below 4, 2 from there on; ties go to the even code as Round's do.
  HWY_INLINE Vec nearest(Vec x) const {
    const Vec size = hn::Min(hn::Abs(x), set(kE2m1Max));
    const Vec fine = hn::Mul(hn::Round(hn::Add(size, size)), set(0.5F));
    const Vec coarse = hn::Mul(hn::Round(hn::Mul(size, set(0.5F))), set(2));
    Vec out = hn::IfThenElse(hn::Lt(size, set(4)), hn::Round(size), coarse);
    out = hn::IfThenElse(hn::Lt(size, set(2)), fine, out);
    return hn::CopySign(out, x);
  }
};

// The best scale so far.
struct Best {
  Vec scale;
  Vec error;
};

// Sums in order of the inputs, of several scales side by side: each addition waits for the one
// before it.
template <int kScales, class Grid>
HWY_INLINE void errors_of(const Groups& groups, const Vec (&scales)[kScales], const Grid& grid,
                          Vec (&errors)[kScales]) {
  Vec inverses[kScales];
  for (int s = 0; s < kScales; ++s) {
    inverses[s] = hn::Div(set(1), scales[s]);
    errors[s] = hn::Zero(F32());
  }
  for (int64_t i = 0; i < groups.group; ++i) {
    const Vec w = groups.weight(i);
    for (int s = 0; s < kScales; ++s) {
      const Vec off = hn::Sub(w, hn::Mul(grid.nearest(hn::Mul(w, inverses[s])), scales[s]));
      errors[s] = hn::Add(errors[s], hn::Mul(off, off));
    }
  }
}

template <int kScales, class Grid>
HWY_INLINE void try_scales(const Groups& groups, const Vec (&scales)[kScales], const Grid& grid,
                           Best* best) {
  Vec errors[kScales];
  errors_of(groups, scales, grid, errors);
  for (int s = 0; s < kScales; ++s) {
    const auto is_better = hn::Lt(errors[s], best->error);
    best->scale = hn::IfThenElse(is_better, scales[s], best->scale);
    best->error = hn::IfThenElse(is_better, errors[s], best->error);
  }
}

// A scale that can be divided by; groups of nothing but (next to) zeros get 1.
HWY_INLINE Vec usable(Vec scale) {
  const auto is_usable = hn::Ge(scale, set(std::numeric_limits<float>::min()));
  return hn::IfThenElse(is_usable, scale, set(1));
}

// The scale that fits the best values best: sum(w q) / sum(q q).
HWY_INLINE Vec least_squares(const Groups& groups, Vec scale) {
  const Int4Grid grid;
  const Vec inverse = hn::Div(set(1), scale);
  Vec product = hn::Zero(F32());
  Vec square = hn::Zero(F32());
  for (int64_t i = 0; i < groups.group; ++i) {
    const Vec w = groups.weight(i);
    const Vec q = grid.nearest(hn::Mul(w, inverse));
    product = hn::Add(product, hn::Mul(w, q));
    square = hn::Add(square, hn::Mul(q, q));
  }
  const Vec fitted = hn::Div(product, hn::Max(square, set(1)));
  return usable(round_to_bf16(fitted));
}

template <class Grid>
HWY_INLINE void store_sums(const Groups& groups, const Best& best, const Grid& grid, int64_t lane,
                           FitSums* out) {
  const Vec inverse = hn::Div(set(1), best.scale);
  Vec weights = hn::Zero(F32());
  Vec values = hn::Zero(F32());
  for (int64_t i = 0; i < groups.group; ++i) {
    const Vec w = groups.weight(i);
    const Vec value = hn::Mul(grid.nearest(hn::Mul(w, inverse)), best.scale);
    weights = hn::Add(weights, hn::Mul(w, w));
    values = hn::Add(values, hn::Mul(value, value));
  }
  const size_t at = static_cast<size_t>(lane);
  hn::StoreU(best.error, F32(), out->error.data() + at);
  hn::StoreU(weights, F32(), out->weight.data() + at);
  hn::StoreU(values, F32(), out->value.data() + at);
}

}  // namespace

void fit_int4_target(const float* weights, int64_t group, Int4Fit* out) {
  const F32 f32;
  const Int4Grid grid;
  for (int64_t lane = 0; lane < kFitLanes; lane += static_cast<int64_t>(hn::Lanes(f32))) {
    const Groups groups{weights + lane, group};
    const Vec largest = groups.largest();
    Best best{set(1), hn::Inf(f32)};
    for (int first = 0; first < kInt4Candidates; first += kAtOnce) {
      Vec scales[kAtOnce];
      for (int s = 0; s < kAtOnce; ++s) {
        scales[s] = usable(round_to_bf16(hn::Mul(largest, set(1 / kInt4Divisors[first + s]))));
      }
      if (first == 0) best.scale = scales[0];
      try_scales(groups, scales, grid, &best);
    }
    for (int step = 0; step < kLeastSquaresSteps; ++step) {
      const Vec scales[] = {least_squares(groups, best.scale)};
      try_scales(groups, scales, grid, &best);
    }
    const Vec inverse = hn::Div(set(1), best.scale);
    for (int64_t i = 0; i < group; ++i) {
      const Vec q = grid.nearest(hn::Mul(groups.weight(i), inverse));
      const auto code = hn::ConvertTo(I32(), hn::Add(q, set(8)));
      hn::StoreU(hn::DemoteTo(U8(), code), U8(), out->codes.data() + i * kFitLanes + lane);
    }
    float scales[kFitLanes];
    hn::StoreU(best.scale, f32, scales);
    for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(f32)); ++i) {
      out->scale[static_cast<size_t>(lane + i)] = to_bf16(scales[i]);
    }
    store_sums(groups, best, grid, lane, &out->sums);
  }
}

void fit_nvfp4_target(const float* weights, float tensor_scale, Nvfp4Fit* out) {
  const F32 f32;
  const U32 u32;
  const I32 i32;
  const E2m1Grid grid;
  for (int64_t lane = 0; lane < kFitLanes; lane += static_cast<int64_t>(hn::Lanes(f32))) {
    const auto n_lanes = static_cast<int64_t>(hn::Lanes(f32));
    const Groups groups{weights + lane, kNvfp4Group};
    float largest[kFitLanes];
    hn::StoreU(groups.largest(), f32, largest);
    int32_t first[kFitLanes];
    for (int64_t i = 0; i < n_lanes; ++i) {
      first[i] = to_fp8_e4m3(largest[i] / kE2m1Max / tensor_scale).bits;
    }
    Best best{set(1), hn::Inf(f32)};
    auto best_code = hn::Set(i32, 1);
    for (int32_t step = kScaleStepFirst; step <= kScaleStepLast; ++step) {
      const auto next = hn::Add(hn::LoadU(i32, first), hn::Set(i32, step));
      const auto code = hn::Min(hn::Max(next, hn::Set(i32, 1)), hn::Set(i32, kScaleCodeMax));
      const Vec scale[] = {usable(hn::Mul(positive_e4m3(code), set(tensor_scale)))};
      Vec error[1];
      errors_of(groups, scale, grid, error);
      const auto is_better = hn::Lt(error[0], best.error);
      best.scale = hn::IfThenElse(is_better, scale[0], best.scale);
      best.error = hn::IfThenElse(is_better, error[0], best.error);
      best_code = hn::IfThenElse(hn::RebindMask(i32, is_better), code, best_code);
    }
    hn::StoreU(hn::DemoteTo(U8(), best_code), U8(), out->scale.data() + lane);
    const Vec inverse = hn::Div(set(1), best.scale);
    for (int64_t i = 0; i < kNvfp4Group; ++i) {
      // Codes run 0, 0.5, 1, 1.5, 2, 3, 4, 6: below 2 the code is twice the value, then it is the
      // value plus 2, and 6 is code 7.
      const Vec q = grid.nearest(hn::Mul(groups.weight(i), inverse));
      const Vec size = hn::Abs(q);
      Vec index = hn::IfThenElse(hn::Lt(size, set(2)), hn::Add(size, size), hn::Add(size, set(2)));
      index = hn::Min(index, set(7));
      const auto code = hn::ConvertTo(I32(), index);
      const auto sign = hn::ShiftLeft<3>(hn::ShiftRight<31>(hn::BitCast(u32, q)));
      const auto bits = hn::Or(code, hn::BitCast(I32(), sign));
      hn::StoreU(hn::DemoteTo(U8(), bits), U8(), out->codes.data() + i * kFitLanes + lane);
    }
    store_sums(groups, best, grid, lane, &out->sums);
  }
}

}  // namespace quire::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire {

HWY_EXPORT(fit_int4_target);
HWY_EXPORT(fit_nvfp4_target);

void fit_int4(const float* weights, int64_t group, Int4Fit* out) {
  HWY_DYNAMIC_DISPATCH(fit_int4_target)(weights, group, out);
}

void fit_nvfp4(const float* weights, float tensor_scale, Nvfp4Fit* out) {
  HWY_DYNAMIC_DISPATCH(fit_nvfp4_target)(weights, tensor_scale, out);
}

float nvfp4_tensor_scale(float largest) {
  const float scale = largest / (6 * kFp8Max);
  return scale >= std::numeric_limits<float>::min() ? scale : 1;
}

}  // namespace quire
#endif  // HWY_ONCE
