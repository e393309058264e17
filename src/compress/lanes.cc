#include "compress/lanes.h"

#include "tensor/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/lanes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quire::HWY_NAMESPACE {

namespace {

namespace hn = hwy::HWY_NAMESPACE;

// As many registers as one has lanes: each round is a perfect shuffle of all their values.
template <class D>
HWY_INLINE void transpose(D d, hn::Vec<D>* rows) {
  constexpr size_t kRows = hn::MaxLanes(D());
  for (size_t round = 1; round < kRows; round *= 2) {
    hn::Vec<D> next[kRows];
    for (size_t i = 0; i < kRows / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kRows / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kRows / 2]);
    }
    for (size_t i = 0; i < kRows; ++i) rows[i] = next[i];
  }
}

}  // namespace

void gather_groups_target(const float* row, int64_t group, int64_t n_lanes, float* out) {
  const hn::Full128<float> f32;
  for (int64_t lane = 0; lane < kFitLanes; lane += 4) {
    for (int64_t i = 0; i < group; i += 4) {
      hn::Vec<decltype(f32)> part[4];
      for (int64_t k = 0; k < 4; ++k) {
        const float* from = row + (lane + k) * group + i;
        part[k] = lane + k < n_lanes ? hn::LoadU(f32, from) : hn::Zero(f32);
      }
      transpose(f32, part);
      for (int64_t k = 0; k < 4; ++k) hn::StoreU(part[k], f32, out + (i + k) * kFitLanes + lane);
    }
  }
}

void scatter_nibbles_target(const uint8_t* codes, int64_t group, int64_t n_lanes, std::byte* out) {
  const hn::Full128<uint8_t> u8;
  const hn::Full64<uint8_t> half;
  const int64_t n_bytes = group / 2;  // of a lane
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (int64_t first = 0; first < n_bytes; first += kFitLanes) {
    hn::Vec<decltype(u8)> part[kFitLanes];
    for (int64_t i = 0; i < kFitLanes; ++i) {
      const uint8_t* low = codes + 2 * (first + i) * kFitLanes;
      part[i] = first + i < n_bytes
                    ? hn::Or(hn::LoadU(u8, low), hn::ShiftLeft<4>(hn::LoadU(u8, low + kFitLanes)))
                    : hn::Zero(u8);
    }
    transpose(u8, part);
    for (int64_t lane = 0; lane < n_lanes; ++lane) {
      uint8_t* to = bytes + lane * n_bytes + first;
      if (first + kFitLanes <= n_bytes) {
        hn::StoreU(part[lane], u8, to);
      } else {
        hn::StoreU(hn::LowerHalf(half, part[lane]), half, to);
      }
    }
  }
}

void add_squares_target(const float* weights, const float* values, int64_t n, FitSums* sums) {
  const hn::CappedTag<float, kFitLanes> f32;
  const int64_t n_whole = n - n % kFitLanes;
  for (int64_t lane = 0; lane < kFitLanes; lane += static_cast<int64_t>(hn::Lanes(f32))) {
    auto error = hn::LoadU(f32, sums->error.data() + lane);
    auto weight = hn::LoadU(f32, sums->weight.data() + lane);
    auto value = hn::LoadU(f32, sums->value.data() + lane);
    for (int64_t i = lane; i < n_whole; i += kFitLanes) {
      const auto w = hn::LoadU(f32, weights + i);
      const auto v = hn::LoadU(f32, values + i);
      const auto off = hn::Sub(w, v);
      error = hn::Add(error, hn::Mul(off, off));
      weight = hn::Add(weight, hn::Mul(w, w));
      value = hn::Add(value, hn::Mul(v, v));
    }
    hn::StoreU(error, f32, sums->error.data() + lane);
    hn::StoreU(weight, f32, sums->weight.data() + lane);
    hn::StoreU(value, f32, sums->value.data() + lane);
  }
  for (int64_t i = n_whole; i < n; ++i) {
    const auto lane = static_cast<size_t>(i - n_whole);
    const float off = weights[i] - values[i];
    sums->error[lane] += off * off;
    sums->weight[lane] += weights[i] * weights[i];
    sums->value[lane] += values[i] * values[i];
  }
}

}  // namespace quire::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire {

HWY_EXPORT(gather_groups_target);
HWY_EXPORT(scatter_nibbles_target);
HWY_EXPORT(add_squares_target);

void gather_groups(const float* row, int64_t group, int64_t n_lanes, float* out) {
  HWY_DYNAMIC_DISPATCH(gather_groups_target)(row, group, n_lanes, out);
}

void scatter_nibbles(const uint8_t* codes, int64_t group, int64_t n_lanes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(scatter_nibbles_target)(codes, group, n_lanes, out);
}

void add_squares(const float* weights, const float* values, int64_t n, FitSums* sums) {
  HWY_DYNAMIC_DISPATCH(add_squares_target)(weights, values, n, sums);
}

}  // namespace quire
#endif  // HWY_ONCE
