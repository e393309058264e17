// Making a failing case smaller: requests are left out and features taken away as long as it still
// fails. Any violation counts, not the first one's words: numbers in them change.
#pragma once

#include <functional>

#include "sim/case.h"

namespace quire::sim {

// A case that fails like `failing` and from which no single request or feature can be taken, unless
// that many runs did not suffice. Runs `fails` a bounded number of times; `fails(failing)` is true.
Case shrink(const Case& failing, const std::function<bool(const Case&)>& fails);

}  // namespace quire::sim
