// JSON from outside, through one door: bounded, strict and without exceptions.
//
// The only file that parses or prints JSON. Not a schema: readers look at the value themselves.
// Refused with the byte offset: anything that is not RFC 8259 (comments, trailing bytes, NaN, BOM),
// invalid UTF-8 and lone surrogate escapes, duplicate keys, and whatever passes a limit.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace quire {

struct JsonLimits {
  size_t bytes_max = size_t{16} << 20;
  int depth_max = 64;
  size_t nodes_max = 1'000'000;
  size_t key_bytes_max = 1024;
  size_t string_bytes_max = size_t{4} << 20;
};

// Errors: invalid_argument, always with the byte offset.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Compact, one line for every reader; never fails: invalid UTF-8 in a string becomes U+FFFD.
std::string dump_json(const Json& value);

}  // namespace quire
