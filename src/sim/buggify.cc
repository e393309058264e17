#include "sim/buggify.h"

namespace quire::sim {

std::string_view name(Point point) {
  constexpr std::array<std::string_view, kPoints> kNames = {
      "turn_late",         "turn_at_once",       "turn_twice",          "row_late",
      "rows_at_once",      "outputs_late",       "outputs_at_once",     "leave_at_once",
      "leave_before_turn", "leave_mid_step",     "leave_twice",         "leave_unknown",
      "evict_before_turn", "forget_before_turn", "reorder_before_turn", "jump_before_turn",
      "audit_mid_step",    "verify_mid_step",    "idle_look",           "report_asked",
      "release_refused",   "flush_refused",      "narrow_identity",
  };
  return kNames[static_cast<size_t>(point)];
}

Buggify::Buggify(uint64_t seed) : rng_(mix64(seed ^ 0x72617265ULL)) {  // "rare"
  for (uint64_t& one_in : one_in_) {
    const uint64_t drawn = rng_.next_below(16);
    one_in = drawn < 8 ? 0 : uint64_t{1} << (1 + drawn % 6);
  }
}

Buggify Buggify::none() {
  Buggify none(0);
  none.one_in_ = {};
  return none;
}

}  // namespace quire::sim
