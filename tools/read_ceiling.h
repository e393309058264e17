// How fast the chosen device reads its memory, measured now: what the floors of a bench divide by.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace quire {

// Bytes a second; nothing for the CPU, whose floors are of caches as much as of memory. Errors: of
// the device.
Result<std::optional<double>> measure_read_ceiling(const std::string& device);

}  // namespace quire
