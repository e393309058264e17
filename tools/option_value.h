// The value of a command's option, or what holds when it was not given.
//
// Commands read their options when they run: nothing that the parser would write into has to live
// from then on.
#pragma once

#include <utility>

#include "tools/commands.h"

namespace quire {

template <class T>
T option_value(const CLI::App& command, const char* name, T otherwise) {
  return command.count(name) > 0 ? command.get_option(name)->as<T>() : std::move(otherwise);
}

}  // namespace quire
