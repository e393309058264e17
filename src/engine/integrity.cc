#include "engine/integrity.h"

#include "base/check.h"

namespace quire {

IntegrityConfig integrity_config(IntegrityLevel level) {
  switch (level) {
    case IntegrityLevel::off:
      return {.tags = false};
    case IntegrityLevel::tags:
      return {};
    case IntegrityLevel::full:
      return {.tags = true,
              .writes = true,
              .seals = true,
              .places = true,
              .poison = true,
              .scrub_pages = 1,
              .audit_steps = 1024};
  }
  CHECK(false);
  return {};
}

std::string_view name(IntegrityLevel level) {
  switch (level) {
    case IntegrityLevel::off:
      return "off";
    case IntegrityLevel::tags:
      return "tags";
    case IntegrityLevel::full:
      return "full";
  }
  CHECK(false);
  return {};
}

std::string_view name(IntegrityCheck check) {
  constexpr std::array<std::string_view, kIntegrityChecks> kNames = {
      "tags",      "coverage", "writes",  "seals",  "places", "index",
      "ownership", "audit",    "numbers", "header", "outputs"};
  return kNames[static_cast<size_t>(check)];
}

}  // namespace quire
