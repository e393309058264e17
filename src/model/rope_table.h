// RopeTable: cosines and sines of every position and pair, computed once in float64.
//
// YaRN is applied here: the rope op sees plain angles. Rounded to float32 on the store.
#pragma once

#include <vector>

#include "model/config.h"
#include "ops/backend.h"

namespace quire {

// Radians a position, one a pair: theta^(-2i / dim), stretched by YaRN where it is given.
// Source: Peng et al. 2023 (arXiv 2309.00071) 3.2; deepseek-ai/DeepSeek-V3 inference/model.py,
// precompute_freqs_cis.
std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t rope_dim);

// What cos and sin are multiplied by: m(mscale) / m(mscale_all_dim), m(s) = 0.1 s ln(factor) + 1; 1
// for every published Kimi config. m(1) when either is missing.
double yarn_cos_sin_factor(const YarnConfig& yarn);
// What the softmax scale is multiplied by: m(mscale_all_dim)^2, 1 when it is missing.
double yarn_softmax_factor(const YarnConfig& yarn);

class RopeTable {
 public:
  // Of positions [0, n_positions). Errors: resource_exhausted.
  static Result<RopeTable> make(Backend& backend, const RopeConfig& rope, int64_t rope_dim,
                                int64_t n_positions);

  View<const float, 2> cos() const { return cos_; }  // [n_positions, rope_dim / 2]
  View<const float, 2> sin() const { return sin_; }  // [n_positions, rope_dim / 2]

 private:
  Buffer memory_;
  View<const float, 2> cos_;  // in memory_
  View<const float, 2> sin_;  // in memory_
};

}  // namespace quire
