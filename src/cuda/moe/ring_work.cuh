// What the blocks and warps of expert_ring.h's kernels work on, one item after another.
#pragma once

#include "cuda/moe/arrivals.cuh"
#include "cuda/moe/block_lists.cuh"
#include "cuda/moe/weight_ring.cuh"

namespace quire::cuda {

inline constexpr int kNarrowRows = 8;  // of an expert, against four tiles at once
inline constexpr int kWideColumns = 4;
inline constexpr int kWideRows = 8 * kWideColumns;  // against one tile at once

// Neighbouring tiles of an expert, for all its rows; of the shared one, a tile for some rows.
struct Unit {
  int active;  // or kSharedExpert
  int tile;
  int n_tiles;
  int first;  // kSharedExpert: the first of at most kWideRows rows
};

// What a warp multiplies before it hands its sums on.
struct Item {
  int active;  // or kSharedExpert
  int tile;
  int n_groups;  // whole ones, for all rows of the expert; 0: one tile
  int first;     // row of the expert
  int n_rows;    // of the expert
  int pairs;     // where its pairs begin; kSharedExpert: every token
};

// The items of some units; `units.next(&unit)` gives the next unit, or false.
template <class Units>
class Items {
 public:
  Items() = default;
  __device__ explicit Items(const Units& units)
      : units_(units), unit_{}, n_rows_(0), tile_(0), first_(0) {}

  __device__ bool next(const DecodeParams& p, const BlockLists& lists, Item* item) {
    if (tile_ >= unit_.n_tiles) {
      if (!units_.next(&unit_)) return false;
      tile_ = 0;
      first_ = unit_.first;
      n_rows_ = unit_.active == kSharedExpert ? p.n_tokens : lists.rows_of(unit_.active);
    }
    const int pairs =
        unit_.active == kSharedExpert ? kSharedExpert : lists.first_pair(unit_.active);
    if (n_rows_ <= kNarrowRows && unit_.n_tiles % kGroupTiles == 0) {
      *item = {unit_.active, unit_.tile, unit_.n_tiles / kGroupTiles, 0, n_rows_, pairs};
      tile_ = unit_.n_tiles;
      return true;
    }
    *item = {unit_.active, unit_.tile + tile_, 0, first_, n_rows_, pairs};
    first_ += kWideRows;
    if (first_ >= n_rows_ || unit_.active == kSharedExpert) {
      first_ = 0;
      ++tile_;
    }
    return true;
  }

 private:
  Units units_;
  Unit unit_;
  int n_rows_;
  int tile_;
  int first_;
};

// The weights of an item: `part` of `n_parts` of their steps.
__device__ inline WeightRun run_of(const PackedMatrix& m, int64_t expert, const Item& item,
                                   int part, int n_parts) {
  const int begin = m.n_steps * part / n_parts;
  const int n_steps = m.n_steps * (part + 1) / n_parts - begin;
  const int64_t step = int64_t{item.tile / kGroupTiles} * m.n_steps + begin;
  const std::byte* at = m.data + expert * m.expert_bytes +
                        (step * kGroupTiles + item.tile % kGroupTiles) * m.step_bytes;
  return item.n_groups > 0 ? WeightRun::of_groups(m, at, item.n_groups * n_steps)
                           : WeightRun::of_tile(m, at, n_steps);
}

// What a warp has to do, in shared memory.
template <class Units>
struct WarpState {
  RingState ring;
  Items<Units> items;
  Item item[2];  // the one that is multiplied, and the next one, in turns
  bool has_next;

  // By a lane.
  __device__ void begin(const Units& units) {
    ring = {};
    ring.run.steps_of_chunk = 1;
    items = Items<Units>(units);
  }
};

// A block's shared memory but for what its kernel alone has, and weights.
template <class Units, int kWarps>
struct BlockState {
  DecodeParams params;  // here they are loaded where they are needed, and take no registers
  WarpState<Units> warps[kWarps];
  BlockLists lists;

  __device__ WeightRing ring(std::byte* slots) {
    const int warp = warp_of_thread();
    return {slots + warp * kRingSlots * kChunkBytes, &warps[warp].ring};
  }
  // By all threads; it is there behind a __syncthreads().
  __device__ void begin(const DecodeParams& p) {
    if (threadIdx.x == kWarpSize) params = p;
  }
};

// Calls body(item) for the items of the warp's units, with the weights of the next one on their
// way.
template <class Units, int kWarps, class Body>
__device__ __forceinline__ void each_item(BlockState<Units, kWarps>& block, std::byte* slots,
                                          int part, int n_parts, const Body& body) {
  const DecodeParams& p = block.params;
  WarpState<Units>& state = block.warps[warp_of_thread()];
  const auto find_next = [&](int turn) {
    if (lane_of_thread() == 0) {
      Item item{};
      const bool has_next = state.items.next(p, block.lists, &item);
      if (has_next) {
        state.item[turn] = item;
        state.ring.queued =
            item.active == kSharedExpert
                ? run_of(p.shared.weights, 0, item, part, n_parts)
                : run_of(p.routed.weights, block.lists.active[item.active], item, part, n_parts);
      }
      state.has_next = has_next;
    }
    __syncwarp();
    const bool has_next = state.has_next;
    if (has_next) {
      WeightRing ring = block.ring(slots);
      ring.queue();
      ring.save();
    }
    return has_next;
  };
  bool has_next = find_next(0);
  for (int turn = 0; has_next; turn ^= 1) {
    has_next = find_next(turn ^ 1);
    body(state.item[turn]);
    __syncwarp();
  }
}

}  // namespace quire::cuda
