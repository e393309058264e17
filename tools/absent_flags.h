// Flags of other servers for what Quire does not have: each is known by name and refused with what
// is missing, so that nobody believes it is on. They are not shown by --help.
#pragma once

#include "base/result.h"
#include "tools/commands.h"

namespace quire {

void add_absent_flags(CLI::App& command);
// Errors: unsupported, naming the flag and what is missing.
Status refuse_absent_flags(const CLI::App& command);

}  // namespace quire
