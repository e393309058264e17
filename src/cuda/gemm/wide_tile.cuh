// WideTile: the shape of a block of the wide kernel, and where things lie in its shared memory.
#pragma once

#include <algorithm>

#include "cuda/common/reduce.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tune/wide_plan.h"
#include "ops/weight_matrix.h"

namespace quire::cuda {

// A chunk: the inputs of a row that a stage holds.
template <WeightFormat kFormat>
struct WideFormat;
template <>
struct WideFormat<WeightFormat::bf16> {
  static constexpr int kInputs = 64;
  static constexpr int kRowBytes = 128;
};
template <>
struct WideFormat<WeightFormat::fp8_block128> {
  static constexpr int kInputs = 128;
  static constexpr int kRowBytes = 128;
};
template <>
struct WideFormat<WeightFormat::int4_group> {
  static constexpr int kInputs = 128;
  static constexpr int kRowBytes = 64;
};

template <WeightFormat kFormat_, int kTokens_>
struct WideTile : WideFormat<kFormat_> {
  using Format = WideFormat<kFormat_>;
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kTokens = kTokens_;
  static constexpr int kRows = kWideRows;
  static constexpr int kConsumers = kRows / 16;  // warps, in two warpgroups; and one that copies
  static constexpr int kConsumerThreads = kConsumers * kWarpSize;
  static constexpr int kThreads = kConsumerThreads + kWarpSize;
  static constexpr int kValues = kTokens / 2;  // sums of a thread
  static constexpr int kSteps = Format::kInputs / 16;

  // Two blocks fit on a multiprocessor while bytes are the limit: one may end, or begin, beside
  // another. Larger tiles have it to themselves.
  static constexpr int kBlocks = wide_blocks_of_sm(kTokens);
  static constexpr int kWeightBytes = kRows * Format::kRowBytes;
  static constexpr int kXPanels = Format::kInputs / kPanelColumns;
  static constexpr int kXPanelBytes = kTokens * kPanelRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kXPanels * kXPanelBytes;
  static_assert(kStageBytes % 1024 == 0);  // the swizzle's unit
  // Of a stage. FP8: one float32 a token, then one of the weights. INT4: eight bytes a row, of the
  // groups of 32; of groups of 128 four, the one and its neighbour.
  static constexpr int kScaleBytes = kFormat == WeightFormat::bf16           ? 0
                                     : kFormat == WeightFormat::fp8_block128 ? 4 * kTokens + 16
                                                                             : 8 * kRows;
  static constexpr int kBarrierBytes = 256;
  static constexpr int kSharedMax = (226 << 10) / kBlocks - 1024 * kBlocks;
  static constexpr int kStages =
      std::min(8, (kSharedMax - 1024 - kBarrierBytes) / (kStageBytes + kScaleBytes));
  static_assert(kStages >= 3);
  // The sums of a block, in the ring's place: [tokens][pitch].
  static constexpr int kStagingPitch = kRows + 4;  // a warp's stores lie in different banks
  static_assert(kTokens * kStagingPitch * 4 <= kStages * kStageBytes);
  static constexpr int kSharedBytes = kStages * (kStageBytes + kScaleBytes) + kBarrierBytes + 1024;
};

// What a block has in shared memory, from a multiple of 1,024 bytes.
template <class Tile>
struct WideShared {
  std::byte* base;

  __device__ explicit WideShared(std::byte* memory)
      : base(memory + (1024 - reinterpret_cast<uintptr_t>(memory) % 1024) % 1024) {}
  __device__ std::byte* weights(int stage) const { return base + stage * Tile::kStageBytes; }
  __device__ std::byte* x(int stage) const { return weights(stage) + Tile::kWeightBytes; }
  __device__ std::byte* scales(int stage) const {
    return base + Tile::kStages * Tile::kStageBytes + stage * Tile::kScaleBytes;
  }
  __device__ Barrier* full(int stage) const {
    return reinterpret_cast<Barrier*>(scales(Tile::kStages)) + stage;
  }
  __device__ Barrier* empty(int stage) const { return full(Tile::kStages + stage); }
  __device__ float* sums() const { return reinterpret_cast<float*>(base); }
};

// A stage of the ring, and how often it was filled before: where the copying warp and the others
// are.
template <class Tile>
struct WideTurn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == Tile::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace quire::cuda
