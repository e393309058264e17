// Streams of packed weights through shared memory, a ring for each warp: what the kernels for few
// tokens are made of.
//
// A lane copies what it will read (but for scales), so that a warp waits for nobody else.
#pragma once

#include "cuda/moe/group_step.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/tune/few_experts_plan.h"

namespace quire::cuda {

static_assert(kFewStepBytes >= kStepBytes<WeightFormat::int4_group> &&
              kFewStepBytes >= kStepBytes<WeightFormat::fp8_block128>);

// Some steps of neighbouring tiles of a group.
struct StepRun {
  const std::byte* at;
  int n_steps;
  int stride;      // bytes between steps
  int bytes;       // of a step, without what tail_lanes copy: whole copies of a warp
  int tail_lanes;  // lanes that copy the 16 bytes each that are left
};

__device__ inline StepRun run_of_tiles(const PackedMatrix& m, int64_t expert, int tile, int n_tiles,
                                       int begin, int end) {
  const int64_t first =
      (int64_t{tile / kGroupTiles} * m.n_steps + begin) * kGroupTiles + tile % kGroupTiles;
  return {.at = m.data + expert * m.expert_bytes + first * m.step_bytes,
          .n_steps = end - begin,
          .stride = kGroupTiles * m.step_bytes,
          .bytes = n_tiles * kStepValueBytes,
          .tail_lanes = n_tiles * (m.step_bytes - kStepValueBytes) / 16};
}

// Brings the steps of a warp's runs, one after another, at most kCut.steps ahead of their use. Runs
// are of at most kCut.tiles tiles; kIsUniform: all of so many.
template <FewCut kCut, bool kIsUniform>
class StepRing {
 public:
  static constexpr int kSteps = kCut.steps;
  static constexpr int kTiles = kCut.tiles;
  static constexpr int kBytes = kTiles * kFewStepBytes;          // of a step
  static constexpr int kAllBytes = kFewWarps * kSteps * kBytes;  // of all warps

  // `memory` has kFewWarps * kSteps steps.
  __device__ explicit StepRing(std::byte* memory)
      : slots_(memory + warp_of_thread() * kSteps * kBytes) {}

  // Starts the copy of a step, if run_of(i), i < n_runs, has one left.
  template <class RunOf>
  __device__ void bring(int n_runs, const RunOf& run_of) {
    while (run_.n_steps == 0 && next_run_ < n_runs) run_ = run_of(next_run_++);
    if (run_.n_steps > 0) {
      const int lane = lane_of_thread();
      const std::byte* from = run_.at + lane * 16;
      const uint32_t to = shared_address(slots_ + write_) + static_cast<uint32_t>(lane) * 16;
      const int bytes = kIsUniform ? kTiles * kStepValueBytes : run_.bytes;
#pragma unroll
      for (int at = 0; at < kTiles * kStepValueBytes; at += 512) {
        if (at < kStepValueBytes || at < bytes) copy_async_16_once(to + at, from + at);
      }
      if (lane < run_.tail_lanes) copy_async_16_once(to + bytes, from + bytes);
      run_.at += run_.stride;
      --run_.n_steps;
      write_ = write_ + kBytes < kSteps * kBytes ? write_ + kBytes : 0;
    }
    commit_copies();
  }
  // The oldest step, when kSteps were brought since it or before it.
  __device__ const std::byte* wait() {
    wait_for_copies<kSteps - 1>();
    __syncwarp();
    return slots_ + read_;
  }
  // It is done with.
  __device__ void free() {
    __syncwarp();
    read_ = read_ + kBytes < kSteps * kBytes ? read_ + kBytes : 0;
  }

 private:
  std::byte* slots_;
  int write_ = 0;
  int read_ = 0;
  int next_run_ = 0;
  StepRun run_{};
};

// acc += a step times the inputs of its tokens: `x` is where those of the lane begin.
template <WeightFormat kFormat, int kTiles>
__device__ __forceinline__ void multiply_in_shared(const std::byte* step, const Bf16* x,
                                                   TileSum (&acc)[kTiles]) {
  // A group's tiles go one by one where their weights take too many registers.
  constexpr int kAtOnce = kTiles == kGroupTiles ? 1 : kTiles;
  StepInput<kFormat> input;
#pragma unroll
  for (int piece = 0; piece < PackedStep<kFormat>::kPieces; ++piece) {
    input.x[piece] = *reinterpret_cast<const uint4*>(x + 32 * piece);
  }
  input.scales = {1.0F, 1.0F};
  if constexpr (kTiles == kGroupTiles && kFormat == kInt4) {
    multiply_chunk(shared_address(step), input, held_minus_24(), acc);
  } else {
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += kAtOnce) {
      PackedStep<kFormat> weights[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        weights[i] = step_in_shared<kFormat>(step + (tile + i) * kStepBytes<kFormat>);
      }
      multiply_step<kAtOnce>(weights, input, acc + tile);
    }
  }
}

// acc += the steps of a run, as they come; bring() asks for one step more.
template <WeightFormat kFormat, int kTiles, class Ring, class Bring>
__device__ __forceinline__ void multiply_steps(Ring& ring, int n_steps, const Bf16* x,
                                               TileSum (&acc)[kTiles], const Bring& bring) {
  for (int i = 0; i < n_steps; ++i) {
    multiply_in_shared<kFormat>(ring.wait(), x, acc);
    ring.free();
    bring();
    x += kStepInputs<kFormat>;
  }
}

template <int kTiles, class Ring, class Bring>
__device__ __forceinline__ void multiply_run(const PackedMatrix& m, Ring& ring, int n_steps,
                                             const Bf16* x, TileSum (&acc)[kTiles],
                                             const Bring& bring) {
  switch (m.format) {
    case WeightFormat::bf16:
      return multiply_steps<WeightFormat::bf16>(ring, n_steps, x, acc, bring);
    case WeightFormat::fp8_block128:
      return multiply_steps<WeightFormat::fp8_block128>(ring, n_steps, x, acc, bring);
    case WeightFormat::int4_group:
      return multiply_steps<WeightFormat::int4_group>(ring, n_steps, x, acc, bring);
  }
}

// The same with one loop for all formats: fewer registers, of which two blocks on a multiprocessor
// have 64 a thread.
template <class Ring, class Bring>
__device__ __forceinline__ void multiply_run_beside(const PackedMatrix& m, Ring& ring, int n_steps,
                                                    const Bf16* x, TileSum (&acc)[1],
                                                    const Bring& bring) {
  for (int i = 0; i < n_steps; ++i) {
    const std::byte* step = ring.wait();
    switch (m.format) {
      case WeightFormat::bf16:
        multiply_in_shared<WeightFormat::bf16>(step, x, acc);
        break;
      case WeightFormat::fp8_block128:
        multiply_in_shared<WeightFormat::fp8_block128>(step, x, acc);
        break;
      case WeightFormat::int4_group:
        multiply_in_shared<WeightFormat::int4_group>(step, x, acc);
        break;
    }
    ring.free();
    bring();
    x += m.step_inputs;
  }
}

// Rows of inputs as they lie in shared memory.
struct SharedRows {
  Bf16* at;
  int pitch;  // few_row_pitch

  __device__ int vectors() const { return (pitch - kFewRowPadding) / 8; }
  // Where lane 4 g + t begins in a row.
  __device__ const Bf16* of_lane(int row) const {
    return at + row * pitch + 8 * (lane_of_thread() % 4);
  }
  // Copies rows, or zeros past their end, by thread `thread` of `n_threads`.
  __device__ void copy(const ExpertInput& from, int row, int thread, int n_threads) const {
    const uint32_t to = shared_address(at + row * pitch);
    const Bf16* source = from.rows + row * from.stride;
    for (int i = thread; i < vectors(); i += n_threads) {
      const bool is_inside = 8 * i < from.n_in;
      copy_async_16(to + 16 * static_cast<uint32_t>(i), source + (is_inside ? 8 * i : 0),
                    is_inside ? 16 : 0);
    }
  }
};

}  // namespace quire::cuda
