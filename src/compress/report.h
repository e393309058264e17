// The report of a compression: what every tensor lost, and what all of them weigh.
#pragma once

#include <vector>

#include "base/json.h"
#include "compress/plan.h"
#include "compress/quantise.h"

namespace quire {

// By conversion: how many tensors, how many bytes before and after, and the error of all together.
struct ConversionTotal {
  Conversion conversion = Conversion::copy;
  int64_t n_tensors = 0;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  QuantisationError error;
};

// `errors` by shard, by job, as Compression has them. In order of Conversion; those that happened.
std::vector<ConversionTotal> total_by_conversion(
    const CompressPlan& plan, const std::vector<std::vector<QuantisationError>>& errors);

// {"format", "group_size", "bytes_before", "bytes_after", "totals": [...], "tensors": [{"name",
// "from", "to", "relative_error", "cosine", "worst_group": {"row", "group", "relative_error"}}]}
Json report_json(const CompressPlan& plan,
                 const std::vector<std::vector<QuantisationError>>& errors);

// "BF16", "INT4", ...
std::string_view name_after(Conversion conversion);

}  // namespace quire
