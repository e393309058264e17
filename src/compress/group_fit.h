// Fitting: the scale of a group of weights, and the few-bit values that go with it, by the least
// squared error. Sixteen groups at once, one a lane; pure arithmetic.
//
// Bits are the same on every machine: a group is one lane, its sums run in order of its inputs, and
// there are no fused multiply-adds. docs/compress.md has the search step by step, so that another
// program can repeat it.
#pragma once

#include <array>
#include <cstdint>

#include "tensor/dtype.h"
#include "weights/weight_scheme.h"

namespace quire {

inline constexpr int64_t kFitLanes = 16;
inline constexpr int64_t kInt4GroupMax = 128;

// Sums over the inputs of each group, in float32: what a fit costs.
struct FitSums {
  std::array<float, kFitLanes> error;   // (weight - value)^2
  std::array<float, kFitLanes> weight;  // weight^2
  std::array<float, kFitLanes> value;   // value^2
};

// Four-bit integers, offset binary: value = (code - 8) * scale.
struct Int4Fit {
  std::array<Bf16, kFitLanes> scale;
  std::array<uint8_t, kInt4GroupMax * kFitLanes> codes;  // [group, lane]
  FitSums sums;
};

// `weights` is [group, kFitLanes], finite.
void fit_int4(const float* weights, int64_t group, Int4Fit* out);

// e2m1 values: value = e2m1(code) * e4m3(scale) * tensor_scale.
struct Nvfp4Fit {
  std::array<uint8_t, kFitLanes> scale;                // e4m3 bits, positive
  std::array<uint8_t, kNvfp4Group * kFitLanes> codes;  // [group, lane]; bit 3 is the sign
  FitSums sums;
};

// `weights` is [kNvfp4Group, kFitLanes], finite.
void fit_nvfp4(const float* weights, float tensor_scale, Nvfp4Fit* out);

// The tensor's scale that lets its largest weight be 6 (e2m1) times 448 (e4m3); 1 of zeros.
float nvfp4_tensor_scale(float largest);

}  // namespace quire
