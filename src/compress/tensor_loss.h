// TensorLoss: what a tensor lost in a compression, in its weights and, where it was calibrated, in
// its outputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "compress/quantise.h"

namespace quire {

// How far the outputs of a map are from what they were, over tokens that were held out from its
// calibration: sums over these tokens and outputs.
struct OutputLoss {
  int64_t n_tokens = 0;    // that the map saw, held out or not
  int64_t n_held_out = 0;  // of them
  double damping = 0;      // that was best; 0: each weight is the nearest
  double output = 0;       // sum of y^2
  double rtn = 0;          // sum of (y - y')^2, were each weight the nearest
  double kept = 0;         // the same of what was written
  double rtn_weights = 0;  // sum of (weight - value)^2, were each weight the nearest

  bool is_gptq() const { return damping > 0; }
  double rtn_relative() const { return output > 0 ? std::sqrt(rtn / output) : 0; }
  double kept_relative() const { return output > 0 ? std::sqrt(kept / output) : 0; }
};

struct TensorLoss {
  QuantisationError weights;  // zeros of a copy
  std::optional<OutputLoss> outputs;
};

}  // namespace quire
