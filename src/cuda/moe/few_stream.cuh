// Streams of packed weights through shared memory, a ring for each warp: what the kernels for few
// tokens are made of.
//
// A lane copies what it will read (but for scales), so that a warp waits for nobody else.
#pragma once

#include "cuda/moe/expert_stream.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/tune/few_experts_plan.h"

namespace quire::cuda {

static_assert(kFewStepBytes >= kStepBytes<WeightFormat::int4_group> &&
              kFewStepBytes >= kStepBytes<WeightFormat::fp8_block128>);

// Some steps of a tile.
struct StepRun {
  const std::byte* at;
  int n_steps;
  int stride;      // bytes between steps
  int tail_lanes;  // lanes that copy 16 bytes of scales
};

__device__ inline StepRun run_of_tile(const PackedMatrix& m, int64_t expert, int tile, int begin,
                                      int end) {
  const int64_t first =
      (int64_t{tile / kGroupTiles} * m.n_steps + begin) * kGroupTiles + tile % kGroupTiles;
  return {.at = m.data + expert * m.expert_bytes + first * m.step_bytes,
          .n_steps = end - begin,
          .stride = kGroupTiles * m.step_bytes,
          .tail_lanes = (m.step_bytes - kStepValueBytes) / 16};
}

// Brings the steps of a warp's runs, one after another, at most kSteps ahead of their use.
template <int kSteps>
class StepRing {
 public:
  // `memory` has kFewWarps * kSteps steps.
  __device__ explicit StepRing(std::byte* memory)
      : slots_(memory + warp_of_thread() * kSteps * kFewStepBytes) {}

  // Starts the copy of a step, if run_of(i), i < n_runs, has one left.
  template <class RunOf>
  __device__ void bring(int n_runs, const RunOf& run_of) {
    while (run_.n_steps == 0 && next_run_ < n_runs) run_ = run_of(next_run_++);
    if (run_.n_steps > 0) {
      const int lane = lane_of_thread();
      const std::byte* from = run_.at + lane * 16;
      const uint32_t to = shared_address(slots_ + write_) + static_cast<uint32_t>(lane) * 16;
      copy_async_16(to, from);
      copy_async_16(to + 512, from + 512);
      if (lane < run_.tail_lanes) copy_async_16(to + kStepValueBytes, from + kStepValueBytes);
      run_.at += run_.stride;
      --run_.n_steps;
      write_ = write_ + kFewStepBytes < kSteps * kFewStepBytes ? write_ + kFewStepBytes : 0;
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
    read_ = read_ + kFewStepBytes < kSteps * kFewStepBytes ? read_ + kFewStepBytes : 0;
  }

 private:
  std::byte* slots_;
  int write_ = 0;
  int read_ = 0;
  int next_run_ = 0;
  StepRun run_{};
};

template <WeightFormat kFormat>
__device__ __forceinline__ void multiply_in_shared(const std::byte* step, const Bf16* x,
                                                   TileSum& acc) {
  const PackedStep<kFormat> weights = step_in_shared<kFormat>(step);
  StepInput<kFormat> input;
#pragma unroll
  for (int piece = 0; piece < PackedStep<kFormat>::kPieces; ++piece) {
    input.x[piece] = *reinterpret_cast<const uint4*>(x + 32 * piece);
  }
  input.scales = {1.0F, 1.0F};
  multiply_step<1>(&weights, input, &acc);
}

// acc += a step times the inputs of its tokens: `x` is where those of the lane begin.
__device__ __forceinline__ void multiply_in_shared(WeightFormat format, const std::byte* step,
                                                   const Bf16* x, TileSum& acc) {
  switch (format) {
    case WeightFormat::bf16:
      return multiply_in_shared<WeightFormat::bf16>(step, x, acc);
    case WeightFormat::fp8_block128:
      return multiply_in_shared<WeightFormat::fp8_block128>(step, x, acc);
    case WeightFormat::int4_group:
      return multiply_in_shared<WeightFormat::int4_group>(step, x, acc);
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
