#include "base/result.h"

namespace quire {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::corruption:
      return "corruption";
    case ErrorCode::resource_exhausted:
      return "resource_exhausted";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::unsupported:
      return "unsupported";
  }
  CHECK(false);
  return {};
}

}  // namespace quire
