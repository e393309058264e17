// A page's block as it lies in shared memory, and which of its tokens meets which lane.
//
// Rows are a multiple of 64 bytes apart, so that eight of them at one column lie in the same banks.
// The block is therefore copied as segments, each 16 bytes further than it lay in the page, and an
// 8x8 tile takes its tokens from different segments: token_of(tile q, row i). Every matrix load
// then touches every bank once. The order of tokens means nothing to the sums as long as scores,
// weights and values agree on it.
#pragma once

#include <cuda_fp16.h>

#include "cuda/common/numbers.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/tune/decode_plan.h"
#include "format/kv_page.h"

namespace quire::cuda {

inline constexpr int kLatentDim = 512;
inline constexpr int kRopeDim = 64;
inline constexpr int kRowValues = kLatentDim + kRopeDim;
inline constexpr int kSegmentBytes = 9216;  // of the block, in both formats
inline constexpr int kSegmentStride = 9216 + 16;

template <KvFormat kFormat>
struct PageShape;

template <>
struct PageShape<KvFormat::bf16> {
  static constexpr int kRowBytes = 2 * kRowValues;
  static constexpr int kSegments = 8;
  static constexpr int kTailBytes = 0;       // behind the values
  static constexpr int kScalePairBytes = 0;  // of it, the least that can be copied: two tokens'
  static constexpr int kStages = 3;
  static constexpr int kWeightParts = 2;  // a weight is the sum of two bfloat16: 16 bits
  __device__ static constexpr int token_of(int q, int i) { return 8 * i + q; }
  __device__ static constexpr int tile_of(int token) { return token % 8; }
  __device__ static constexpr int row_of(int token) { return token / 8; }
  // Latent, in a tile of 16, of row g (half 0) or g + 8 (half 1) of a product with values.
  __device__ static constexpr int latent_of(int g, int half) { return g + 8 * half; }
};

template <>
struct PageShape<KvFormat::fp8_e4m3_584> {
  static constexpr int kRowBytes = kRowValues;
  static constexpr int kSegments = 4;
  static constexpr int kTailBytes = 8 * kPageTokens;  // two float32 scales a token
  static constexpr int kScalePairBytes = 16;
  static constexpr int kStages = 3;
  static constexpr int kWeightParts = 1;  // float16
  __device__ static constexpr int token_of(int q, int i) { return 16 * (i / 2) + 2 * q + i % 2; }
  __device__ static constexpr int tile_of(int token) { return token % 16 / 2; }
  __device__ static constexpr int row_of(int token) { return token / 16 * 2 + token % 2; }
  __device__ static constexpr int latent_of(int g, int half) { return 2 * g + half; }
};

template <KvFormat kFormat>
struct StagedPage {
  using Shape = PageShape<kFormat>;
  static constexpr int kSegmentTokens = kSegmentBytes / Shape::kRowBytes;
  static constexpr int kBytes =
      (Shape::kSegments * kSegmentStride + Shape::kTailBytes + 127) / 128 * 128;
  static constexpr int kBlockBytes = Shape::kSegments * kSegmentBytes + Shape::kTailBytes;
  static_assert(kSegmentTokens * Shape::kSegments == kPageTokens);

  std::byte* data;  // shared memory, [kBytes]

  __device__ std::byte* row(int token) const {
    return data + token / kSegmentTokens * kSegmentStride +
           token % kSegmentTokens * Shape::kRowBytes;
  }
  // FP8 only: {latent, rope} of a token. The last segment is copied with them behind it.
  __device__ float2* scales(int token) const {
    return reinterpret_cast<float2*>(data + (Shape::kSegments - 1) * kSegmentStride +
                                     kSegmentBytes) +
           token;
  }
};

// Four e4m3 as two pairs of float16, lowest byte first: exact, NaN stays NaN.
__device__ inline void e4m3x4_to_f16(uint32_t four, uint32_t* low, uint32_t* high) {
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(*low), "=r"(*high)
      : "r"(four));
}

// Four integers of 8 bits as two pairs of float16, lowest byte first: exact. 1,024 + the integer
// with its sign bit flipped is what the byte below 0x64 makes.
__device__ inline void int8x4_to_f16(uint32_t four, uint32_t* low, uint32_t* high) {
  const uint32_t flipped = four ^ 0x80808080U;
  const auto centred = [](uint32_t pair) {
    const uint32_t middle = 0x64806480U;  // 1,152 twice
    const half2 value =
        __hsub2(*reinterpret_cast<const half2*>(&pair), *reinterpret_cast<const half2*>(&middle));
    return *reinterpret_cast<const uint32_t*>(&value);
  };
  *low = centred(__byte_perm(flipped, 0x64646464U, 0x4140));
  *high = centred(__byte_perm(flipped, 0x64646464U, 0x4342));
}

}  // namespace quire::cuda
