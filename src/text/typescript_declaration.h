// Tool declarations as TypeScript, the text that Kimi K2.5 and later were trained on.
//
// From OpenAI's `tools`, keys sorted first, to
//   # Tools\n\n## functions\nnamespace functions {\n ... }\n
// with one `type NAME = (_: {...}) => any;` a function, descriptions and constraints as comments,
// and an `interface` for each of its $defs. Not a TypeScript printer: it keeps the publisher's
// quirks ("Default: False", enum strings unescaped), since it must match byte for byte.
// Source: moonshotai/Kimi-K2.5, tool_declaration_ts.py; tests hold its outputs.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "base/result.h"

namespace quire {

// Empty when `tools` holds no function. Errors: invalid_argument, for schemas that the publisher's
// conversion refuses too ("oneOf" without a type, an unknown $ref).
Result<std::string> typescript_declaration(const Json& tools);

// The same value, the keys of every object in bytewise order.
Json sorted_by_key(const Json& value);

}  // namespace quire
