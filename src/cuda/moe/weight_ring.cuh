// A warp's stream of packed weights through shared memory.
//
// Each warp has a ring of its own and waits for nobody else. What is brought at once, a chunk, is
// all four tiles of a step, or up to four steps of one tile: four steps of a tile either way.
#pragma once

#include "cuda/common/reduce.cuh"
#include "cuda/moe/packed_layout.h"
#include "cuda/ptx/async_copy.cuh"

namespace quire::cuda {

inline constexpr int kRingSlots = 2;  // three are slower (docs/kernels/experts.md)
inline constexpr int kChunkBytes = kGroupTiles * kStepBytes<WeightFormat::int4_group>;
static_assert(kStepBytes<WeightFormat::int4_group> >= kStepBytes<WeightFormat::fp8_block128>);

// Steps of all tiles of neighbouring groups, or of one tile.
struct WeightRun {
  const std::byte* at;
  int n_steps;
  int steps_of_chunk;  // 1 of all tiles, kGroupTiles of one tile
  int stride;          // bytes between steps: of all tiles of one

  __device__ static WeightRun of_groups(const PackedMatrix& m, const std::byte* at, int n_steps) {
    return {at, n_steps, 1, kGroupTiles * m.step_bytes};
  }
  __device__ static WeightRun of_tile(const PackedMatrix& m, const std::byte* at, int n_steps) {
    return {at, n_steps, kGroupTiles, kGroupTiles * m.step_bytes};
  }
};

// How far a warp's ring has come, in shared memory: between items it takes no registers.
struct RingState {
  WeightRun run;
  WeightRun queued;  // what comes after it
  int slot;          // of the oldest chunk
  int brought;       // chunks that are in the ring or on their way
};

// Chunks of one run after another.
class WeightRing {
 public:
  // Of a warp: kRingSlots chunks, and how far it has come; nothing at first. What it does further
  // is in the state after save().
  __device__ WeightRing(std::byte* slots, RingState* state)
      : slots_(shared_address(slots)),
        state_(state),
        at_(state->run.at),
        n_steps_(state->run.n_steps),
        n_copies_(state->run.steps_of_chunk),
        stride_(state->run.stride),
        slot_(state->slot),
        brought_(state->brought) {}

  // By all lanes.
  __device__ void save() const {
    __syncwarp();
    if (lane_of_thread() == 0) {
      state_->run = {at_, n_steps_, n_copies_, stride_};
      state_->slot = slot_;
      state_->brought = brought_;
    }
    __syncwarp();
  }
  // After the state's queued run was set by a lane, behind a __syncwarp(): when it was empty.
  __device__ void queue() {
    if (n_steps_ == 0) take_queued();
    while (brought_ < kRingSlots && n_steps_ > 0) {
      const int slot = slot_ + brought_;
      bring(slot < kRingSlots ? slot : slot - kRingSlots);
    }
  }
  // The oldest chunk's address in shared memory, when it is there.
  __device__ __forceinline__ uint32_t wait() const {
    if (brought_ == kRingSlots) {
      wait_for_copies<kRingSlots - 1>();
    } else {
      wait_for_copies<0>();
    }
    __syncwarp();
    return slots_ + slot_ * kChunkBytes;
  }
  // It is done with: the next copy takes its place.
  __device__ __forceinline__ void free() {
    __syncwarp();
    --brought_;
    if (n_steps_ > 0) bring(slot_);
    if (++slot_ == kRingSlots) slot_ = 0;
  }

 private:
  __device__ void take_queued() {
    const WeightRun& run = state_->queued;
    at_ = run.at;
    n_steps_ = run.n_steps;
    n_copies_ = run.steps_of_chunk;
    stride_ = run.stride;
    __syncwarp();
    if (lane_of_thread() == 0) state_->queued.n_steps = 0;
    __syncwarp();
  }
  __device__ __forceinline__ void bring(int slot) {
    const int lane = lane_of_thread();
    const uint32_t to = slots_ + slot * kChunkBytes + static_cast<uint32_t>(lane) * 16;
    const std::byte* from = at_ + lane * 16;
    int n = 1;
    if (n_copies_ == 1) {
      constexpr int kWhole = kGroupTiles * kStepValueBytes / 512;
#pragma unroll
      for (int i = 0; i < kWhole; ++i) copy_async_16_once(to + 512 * i, from + 512 * i);
      if (512 * kWhole + 16 * lane < stride_) {
        copy_async_16_once(to + 512 * kWhole, from + 512 * kWhole);
      }
    } else {
      n = min(n_steps_, n_copies_);
      const int bytes = stride_ / kGroupTiles;
#pragma unroll 1
      for (int i = 0; i < n; ++i) {
#pragma unroll 1
        for (int at = 16 * lane; at < bytes; at += 512) {
          copy_async_16_once(to + i * bytes + at - 16 * lane, at_ + i * stride_ + at);
        }
      }
    }
    commit_copies();
    at_ += n * stride_;
    n_steps_ -= n;
    ++brought_;
    if (n_steps_ == 0) take_queued();
  }

  uint32_t slots_;
  RingState* state_;
  const std::byte* at_;
  int n_steps_;
  int n_copies_;
  int stride_;
  int slot_;
  int brought_;
};

}  // namespace quire::cuda
