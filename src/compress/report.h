// The report of a compression: what every tensor lost, and what all of them weigh.
#pragma once

#include <optional>
#include <vector>

#include "base/json_fwd.h"
#include "compress/plan.h"
#include "compress/tensor_loss.h"

namespace quire {

// What calibration did to the routed experts of a plan.
struct CalibrationTotal {
  int64_t n_calibrated = 0;  // tensors by GPTQ
  int64_t n_too_few = 0;     // to nearest, for want of tokens
  int64_t n_not_better = 0;  // to nearest, because GPTQ's outputs were no nearer
  int64_t tokens_least = 0;  // of a tensor
  OutputLoss outputs;        // of all together
};

// Nothing of a plan that does not calibrate.
std::optional<CalibrationTotal> total_calibration(
    const std::vector<std::vector<TensorLoss>>& losses);

// By conversion: how many tensors, how many bytes before and after, and the error of all together.
struct ConversionTotal {
  Conversion conversion = Conversion::copy;
  int64_t n_tensors = 0;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  QuantisationError error;
};

// `losses` by shard, by job, as Compression has them. In order of Conversion; those that happened.
std::vector<ConversionTotal> total_by_conversion(
    const CompressPlan& plan, const std::vector<std::vector<TensorLoss>>& losses);

// {"format", "group_size", "bytes_before", "bytes_after", "totals": [...], "tensors": [{"name",
// "from", "to", "relative_error", "cosine", "worst_group": {"row", "group", "relative_error"}}]}. A
// calibrated tensor has also "calibration": {"tokens", "held_out", "method", "damping",
// "output_error", and of rounding to nearest "rtn_output_error" and "rtn_relative_error"}, and the
// whole has it too.
Json report_json(const CompressPlan& plan, const std::vector<std::vector<TensorLoss>>& losses);

// "BF16", "INT4", ...
std::string_view name_after(Conversion conversion);

}  // namespace quire
