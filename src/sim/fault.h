// Faults: what can be planted in a simulated run, below the check that must find it.
//
// The numbers are those of the list that the design works with. One fault is planted in a run,
// once, at a moment drawn from the seed, as soon as there is something to damage.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire::sim {

enum class Fault : uint8_t {
  f01,  // allocator: a page that somebody owns is on the free list
  f02,  // allocator: a page is let go once more than it was taken
  f03,  // allocator: a page is let go by a reference from an earlier life
  f04,  // allocator: a page is never let go
  f05,  // index: a page that somebody reads is evicted and freed
  f06,  // index: an evicted page stays in the index
  f07,  // index: a page is published before it is sealed
  f08,  // index: identities of a few bits
  f09,  // index: the key of a request leaves its tenant out
  f10,  // scheduler: a page is stolen between its match and its use
  f11,  // scheduler: a request leaves, and the lease of its open step is lost with it
  f12,  // scheduler: two pages of a request change places in its row
  f13,  // host to device: a step's inputs change after they were planned
  f14,  // page table: an entry is another request's, a double, or from an earlier life
  f15,  // store: into another page, at the wrong offset, or not at all
  f16,  // content: bits of a sealed page flip while only the index holds it
  f17,  // scales: one of a sealed page changes, or all are of another version
  f18,  // numerics: a value that is no number
  f28,  // output: two rows of a result change places
  f29,  // checker: the pages of a row were not compared
  f30,  // any of these, in a pool that is always full
};
inline constexpr size_t kFaults = 21;

// "F01".
std::string_view name(Fault fault);
std::string_view what(Fault fault);
std::optional<Fault> fault_of(std::string_view name);
// The fault itself; of F30 the one that this seed has.
Fault planted_by(Fault fault, uint64_t seed);

}  // namespace quire::sim
