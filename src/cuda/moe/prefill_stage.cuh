// A stage of the prompt kernels: some inputs of a tile's tokens and of 256 rows of weights, in
// shared memory, and the products that a warpgroup makes of it.
//
// Tokens are panels of 64 inputs as ptx/wgmma.cuh says, whose inputs were put in order beforehand
// (input_order.h). Weights are four groups of packed_layout.h; warp w of a warpgroup reads tile w
// of its two groups. They are widened in registers, the A of products whose N is the tokens.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cuda/moe/packed_step.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace quire::cuda {

inline constexpr int kBlockGroups = kWholeGroups;  // of 64 rows
inline constexpr int kWarpgroupGroups = 2;         // of these

// Bytes of a stage, and where its parts lie.
template <WeightFormat kFormat, int kTokens>
struct StageLayout {
  static constexpr int kInputs = kFormat == WeightFormat::bf16 ? 64 : 128;
  static constexpr int kPanels = kInputs / kPanelColumns;
  static constexpr int kSteps = kInputs / kStepInputs<kFormat>;
  static constexpr int kPanelBytes = kTokens * kPanelRowBytes;
  static constexpr int kWeights = kPanels * kPanelBytes;
  static constexpr int kGroupBytes = kSteps * kGroupTiles * kStepBytes<kFormat>;
  static constexpr int kScales = kWeights + kBlockGroups * kGroupBytes;  // of tokens: FP8 only
  static constexpr int kUsed =
      kScales + (kFormat == WeightFormat::fp8_block128 ? kTokens * int{sizeof(float)} : 0);
  static constexpr int kBytes = (kUsed + 1023) / 1024 * 1024;
};

// Sums of a warpgroup's rows, as ptx/wgmma.cuh says of D, by group.
template <int kTokens>
using RowSums = float[kWarpgroupGroups][kTokens / 2];

// body(integral_constant<int, i>) for i < kCount.
template <int kCount, int kFirst = 0, class Body>
__device__ __forceinline__ void unrolled(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(std::integral_constant<int, kFirst>{});
    unrolled<kCount, kFirst + 1>(body);
  }
}

// Operand of the tokens for 32 inputs of a stage: the first 16; the next are 2 further.
template <class Layout>
__device__ __forceinline__ uint64_t token_operand(uint64_t stage, int piece) {
  const int offset = piece / 2 * Layout::kPanelBytes + piece % 2 * kPanelRowBytes / 2;
  return stage + static_cast<uint64_t>(offset >> 4);
}

template <int kTokens, class Piece>
__device__ __forceinline__ void start_piece(float (&sum)[kTokens / 2], const Piece& piece,
                                            uint64_t tokens, Sum first) {
  wgmma_fence();
  wgmma_of_rows(sum, piece.first, tokens, first);
  wgmma_of_rows(sum, piece.second, tokens + 2, Sum::goes_on);
  wgmma_commit();
}

// sum += part, rows scaled.
template <int kValues>
__device__ __forceinline__ void fold_rows(float (&sum)[kValues], const float (&part)[kValues],
                                          float low, float high) {
#pragma unroll
  for (int i = 0; i < kValues; i += 4) {
    sum[i] = fmaf(low, part[i], sum[i]);
    sum[i + 1] = fmaf(low, part[i + 1], sum[i + 1]);
    sum[i + 2] = fmaf(high, part[i + 2], sum[i + 2]);
    sum[i + 3] = fmaf(high, part[i + 3], sum[i + 3]);
  }
}

// sums += the stage's weights times its tokens. `weights` is the warp's tile in the warpgroup's
// first group; `token_scales` is null or [kTokens].
template <WeightFormat kFormat, int kTokens>
struct StageProducts;

// Values are multiplied with their group's scale on the way to the operand (ops/moe.h), so that the
// sums just go on.
template <int kTokens>
struct StageProducts<WeightFormat::int4_group, kTokens> {
  static constexpr WeightFormat kFormat = WeightFormat::int4_group;
  using Layout = StageLayout<kFormat, kTokens>;
  using Step = PackedStep<kFormat>;

  __device__ __forceinline__ static void add(const std::byte* stage, const std::byte* weights,
                                             const float*, RowSums<kTokens>& sums) {
    const uint64_t tokens = operand_of_rows(stage);
    const Step steps[2] = {step_in_shared<kFormat>(weights),
                           step_in_shared<kFormat>(weights + Layout::kGroupBytes)};
    unrolled<2 * Step::kPieces>([&](auto index) {
      constexpr int kGroup = decltype(index)::value % 2;
      constexpr int kPiece = decltype(index)::value / 2;
      start_piece<kTokens>(sums[kGroup], steps[kGroup].template scaled_piece<kPiece>(),
                           token_operand<Layout>(tokens, kPiece), Sum::goes_on);
    });
    wgmma_wait<0>();
    wgmma_hold(sums[0]);
    wgmma_hold(sums[1]);
  }
};

// A block of 128 inputs has one scale, and so has a token's where the input was rounded.
template <int kTokens>
struct StageProducts<WeightFormat::fp8_block128, kTokens> {
  static constexpr WeightFormat kFormat = WeightFormat::fp8_block128;
  using Layout = StageLayout<kFormat, kTokens>;
  using Step = PackedStep<kFormat>;

  __device__ __forceinline__ static void add(const std::byte* stage, const std::byte* weights,
                                             const float* token_scales, RowSums<kTokens>& sums) {
    const uint64_t tokens = operand_of_rows(stage);
#pragma unroll
    for (int group = 0; group < kWarpgroupGroups; ++group) {
      float part[kTokens / 2];
      float2 scales{};
#pragma unroll
      for (int s = 0; s < Layout::kSteps; ++s) {
        const Step step = step_in_shared<kFormat>(weights + group * Layout::kGroupBytes +
                                                  s * kGroupTiles * kStepBytes<kFormat>);
        if (s == 0) scales = step.scales;  // past the end of the inputs they are zero
        unrolled<Step::kPieces>([&](auto index) {
          constexpr int kPiece = decltype(index)::value;
          const int at = s * Step::kPieces + kPiece;
          start_piece<kTokens>(part, step.template piece<kPiece>(),
                               token_operand<Layout>(tokens, at),
                               at == 0 ? Sum::starts : Sum::goes_on);
        });
      }
      wgmma_wait<0>();
      wgmma_hold(part);
      if (token_scales != nullptr) {
#pragma unroll
        for (int j = 0; j < kTokens / 8; ++j) {
          const float2 of =
              *reinterpret_cast<const float2*>(token_scales + 8 * j + 2 * (lane_of_thread() % 4));
          part[4 * j] *= of.x;
          part[4 * j + 1] *= of.y;
          part[4 * j + 2] *= of.x;
          part[4 * j + 3] *= of.y;
        }
      }
      fold_rows(sums[group], part, scales.x, scales.y);
    }
  }
};

template <int kTokens>
struct StageProducts<WeightFormat::bf16, kTokens> {
  static constexpr WeightFormat kFormat = WeightFormat::bf16;
  using Layout = StageLayout<kFormat, kTokens>;
  using Step = PackedStep<kFormat>;

  __device__ __forceinline__ static void add(const std::byte* stage, const std::byte* weights,
                                             const float*, RowSums<kTokens>& sums) {
    const uint64_t tokens = operand_of_rows(stage);
#pragma unroll
    for (int group = 0; group < kWarpgroupGroups; ++group) {
#pragma unroll
      for (int s = 0; s < Layout::kSteps; ++s) {
        const Step step = step_in_shared<kFormat>(weights + group * Layout::kGroupBytes +
                                                  s * kGroupTiles * kStepBytes<kFormat>);
        start_piece<kTokens>(sums[group], step.template piece<0>(),
                             token_operand<Layout>(tokens, s), Sum::goes_on);
      }
    }
    wgmma_wait<0>();
    wgmma_hold(sums[0]);
    wgmma_hold(sums[1]);
  }
};

}  // namespace quire::cuda
