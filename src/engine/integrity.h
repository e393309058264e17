// Integrity: which checks an engine makes that no request reads another's page, and what they
// found.
//
// Each check has a switch of its own, so that its cost, and what it alone catches, can be measured;
// `--integrity off | tags | full` names three settings of them all. Leases (F) are not here:
// without them the engine is wrong, with or without faults. docs/engine.md, "Integrity".
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace quire {

enum class IntegrityLevel : uint8_t { off, tags, full };

std::string_view name(IntegrityLevel level);

struct IntegrityConfig {
  // T: every page of a row is compared with the directory before the step and before a token
  // leaves. The executor does it; the engine counts what was covered.
  bool tags = true;
  // W: the store path drops a write into a page that the row may not write. By executors that can.
  bool writes = false;
  // S: the seals of the pages of a prefix hit are verified before they are used.
  bool seals = false;
  // K: at planning, the page at place k of a row is the one that was sealed as the k-th of these
  // tokens, or belongs to the request.
  bool places = false;
  // P: a page is filled with kPoison when it is allocated, so that a row nobody wrote is no number.
  bool poison = false;
  // S again: so many sealed pages are verified each step, in turn. 0: none.
  int32_t scrub_pages = 0;
  // I: the whole audit every so many steps; leases that nobody has are taken back. 0: never.
  int32_t audit_steps = 0;
};

// `off` makes none of the checks. `tags` is what costs next to nothing. `full` makes them all.
IntegrityConfig integrity_config(IntegrityLevel level);

// What a page is filled with when it is allocated: not a number in BF16, FP32 and e4m3.
inline constexpr uint8_t kPoison = 0xff;

// What found something wrong.
enum class IntegrityCheck : uint8_t {
  tags,       // T: a page lives another life than the row recorded
  coverage,   // T: fewer pages were compared than the row has
  writes,     // W
  seals,      // S: on a prefix hit, or by the scrub
  places,     // K: a row of the page table
  index,      // K: an entry of the prefix index that no longer describes its page
  ownership,  // I: the pool refused a call
  audit,      // I
  numbers,    // N: not a number, or not a token
  header,     // O: a step's inputs are not what was planned
  outputs,    // O: a result for another request
};
inline constexpr size_t kIntegrityChecks = 11;

std::string_view name(IntegrityCheck check);

// How often each check failed. Only grows.
class IntegrityCounts {
 public:
  void add(IntegrityCheck check, uint64_t n = 1) { counts_[static_cast<size_t>(check)] += n; }
  uint64_t operator[](IntegrityCheck check) const { return counts_[static_cast<size_t>(check)]; }
  uint64_t total() const { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); }

 private:
  std::array<uint64_t, kIntegrityChecks> counts_{};
};

}  // namespace quire
