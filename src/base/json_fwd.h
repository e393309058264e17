// The name Json, for headers that only refer to one: nlohmann's header costs two seconds of
// compiling. Whoever looks into a value includes base/json.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace quire {

// Objects keep the order in which keys were written: tool declarations are shown to the model.
using Json = nlohmann::ordered_json;

}  // namespace quire
