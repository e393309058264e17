#include "sim/fault.h"

#include "base/rng.h"

namespace quire::sim {

namespace {

struct Words {
  std::string_view name, what;
};

constexpr std::array<Words, kFaults> kWords = {{
    {"F01", "a page that somebody owns is on the free list"},
    {"F02", "a page is let go once more than it was taken"},
    {"F03", "a page is let go by a reference from an earlier life"},
    {"F04", "a page is never let go"},
    {"F05", "a page that somebody reads is evicted and freed"},
    {"F06", "an evicted page stays in the index"},
    {"F07", "a page is published before it is sealed"},
    {"F08", "identities are so short that different pages have the same"},
    {"F09", "the key of a request leaves its tenant out"},
    {"F10", "a page is stolen between its match and its first use"},
    {"F11", "a request leaves, and the lease of its open step is lost with it"},
    {"F12", "two pages of a request change places in its row"},
    {"F13", "a step's inputs change after they were planned"},
    {"F14", "an entry of a row is another request's, a double, or from an earlier life"},
    {"F15", "a store goes into another page, to the wrong offset, or nowhere"},
    {"F16", "bits of a sealed page flip while only the index holds it"},
    {"F17", "scales of a sealed page change while only the index holds it"},
    {"F18", "a value is no number"},
    {"F28", "two rows of a result change places"},
    {"F29", "the pages of a row were not compared"},
    {"F30", "any of the others, in a pool that is always full"},
}};

}  // namespace

std::string_view name(Fault fault) { return kWords[static_cast<size_t>(fault)].name; }
std::string_view what(Fault fault) { return kWords[static_cast<size_t>(fault)].what; }

Fault planted_by(Fault fault, uint64_t seed) {
  return fault == Fault::f30 ? static_cast<Fault>(mix64(seed) % (kFaults - 1)) : fault;
}

std::optional<Fault> fault_of(std::string_view wanted) {
  for (size_t i = 0; i < kFaults; ++i) {
    if (kWords[i].name == wanted) return static_cast<Fault>(i);
  }
  return std::nullopt;
}

}  // namespace quire::sim
