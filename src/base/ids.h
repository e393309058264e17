// Typed ids: a page is never passed where a request is meant. Each is a plain integer in memory.
// Ids have no arithmetic; a range of ids is walked through its integer.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace quire {

template <class Tag, class Integer>
struct Id {
  Integer value = 0;
  friend constexpr auto operator<=>(Id, Id) = default;
};

using PageId = Id<struct PageTagType, int32_t>;  // a physical page of the KV pool, 0 .. pages - 1
using SlotId = Id<struct SlotTagType, int32_t>;  // a row of the page table, 0 .. max_running - 1
using RequestId =
    Id<struct RequestTagType, uint64_t>;              // given by the engine, never reused in a run
using LayerIndex = Id<struct LayerTagType, int32_t>;  // a decoder layer, 0-based
using Rank = Id<struct RankTagType, int32_t>;         // a tensor-parallel rank, 0-based
using TicketId = Id<struct TicketTagType, uint64_t>;  // work submitted to an Executor, in order

// Token ids are plain int32_t everywhere: they are data, not names of ours.
using Token = int32_t;

inline constexpr PageId kNoPage{-1};

}  // namespace quire

template <class Tag, class Integer>
struct std::hash<quire::Id<Tag, Integer>> {
  size_t operator()(quire::Id<Tag, Integer> id) const noexcept {
    return std::hash<Integer>{}(id.value);
  }
};
