// JSON as Python's json.dumps(value, ensure_ascii=False) writes it: ", " and ": " between parts,
// non-ASCII as it is. Chat templates show JSON to models so, and models were trained on it.
#pragma once

#include <string>

#include "base/json_fwd.h"

namespace quire {

std::string python_json(const Json& value);

// A number as Python's repr() writes it: the shortest digits that read back the same, with an
// exponent below 1e-4 and from 1e16 on.
std::string python_repr(double value);

}  // namespace quire
