// TensorLoss: what a tensor lost in a compression, in its weights and, where it was calibrated, in
// its outputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "compress/quantise.h"

namespace quire {

// How far the outputs of a map are from what they were, over the inputs it was calibrated with:
// sums over its tokens and outputs.
struct OutputLoss {
  int64_t n_tokens = 0;    // that the map saw
  bool is_gptq = false;    // what was written; else each weight is the nearest
  double output = 0;       // sum of y^2
  double rtn = 0;          // sum of (y - y')^2, were each weight the nearest
  double gptq = 0;         // the same of GPTQ; 0 where it was not tried
  double rtn_weights = 0;  // sum of (weight - value)^2, were each weight the nearest

  double rtn_relative() const { return output > 0 ? std::sqrt(rtn / output) : 0; }
  double kept_relative() const {
    return output > 0 ? std::sqrt((is_gptq ? gptq : rtn) / output) : 0;
  }
};

struct TensorLoss {
  QuantisationError weights;  // zeros of a copy
  std::optional<OutputLoss> outputs;
};

}  // namespace quire
