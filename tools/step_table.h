// The table of a timed step: its ops by name, beside what their bytes take at the read ceiling.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/json_fwd.h"
#include "model/config.h"
#include "tools/timed_backend.h"

namespace quire {

// Ops of one name in a step.
struct OpRow {
  std::string name;
  int32_t calls = 0;
  double us = 0;     // of all calls
  double bytes = 0;  // of all calls
};

// Ops of equal names added up, in the order in which they first come.
std::vector<OpRow> add_up(std::span<const OpNote> notes, std::span<const double> times_us);

// [{"op", "calls", "us", "mb", "floor_us", "share"}]; without a ceiling, no floors.
Json describe_ops(std::span<const OpRow> rows, std::optional<double> bytes_per_second);
void print_ops(const Json& ops);

// Distinct experts that independent routing would choose for a batch, of one layer.
double expected_experts(const ModelShape& shape, int64_t n_tokens);
// {"expected", "mean", "min", "max", "spread"} over the layers. "spread": the mean lies within 5 %
// of what is expected; a step whose routing clumps reads fewer experts than a real one, and its
// times are void. Null for a model without experts.
Json describe_routing(const ModelShape& shape, int64_t n_tokens, std::span<const int32_t> chosen);

}  // namespace quire
