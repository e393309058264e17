// ThinTile: the shape of a block of the thin kernel, and the arithmetic on one chunk of it.
#pragma once

#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/thin.h"
#include "cuda/ptx/mma.cuh"
#include "cuda/tune/thin_plan.h"

namespace quire::cuda {

// How a format's rows are cut: a chunk is what a warp takes of a row at a time.
template <WeightFormat kFormat>
struct ThinFormat;
template <>
struct ThinFormat<WeightFormat::bf16> {
  static constexpr int kRowBytes = 64;  // of a chunk
  static constexpr int kPitch = 64;     // bytes between rows in shared memory
  static constexpr int kInputs = 32;    // of a chunk
};
// Pitches that are odd multiples of 16 bytes: the eight rows that a warp reads at once lie in
// different banks.
template <>
struct ThinFormat<WeightFormat::fp8_block128> {
  static constexpr int kRowBytes = 64;
  static constexpr int kPitch = 80;
  static constexpr int kInputs = 64;
};
template <>
struct ThinFormat<WeightFormat::int4_group> {
  static constexpr int kRowBytes = 32;
  static constexpr int kPitch = 48;
  static constexpr int kInputs = 64;
};

// Outputs are the rows of the tensor-core tile, tokens its columns. Warps share the rows and split
// k: nothing is shared in the loop.
template <WeightFormat kFormat_, int kTokenTiles_, ThinRing kRing = ThinRing::half>
struct ThinTile : ThinFormat<kFormat_> {
  using Format = ThinFormat<kFormat_>;
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kTokenTiles = kTokenTiles_;  // of 8
  static constexpr int kRowTiles = 2;               // of 16
  // Few tokens leave little to do for each byte: more warps hide more of its latency.
  static constexpr int kWarps = kTokenTiles == 2 && kFormat == WeightFormat::fp8_block128 ? 4 : 8;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kInputGroups = kWarps;  // warps that split k
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kRows = 16 * kRowTiles;
  static_assert(kRows == kThinRows);
  static constexpr int kSteps = Format::kInputs / 32;  // two tensor-core steps each

  // A warp's copy: 16 bytes a lane, kRowLanes lanes a row.
  static constexpr int kRowLanes = Format::kRowBytes / 16;
  static constexpr int kCopyRows = kWarpSize / kRowLanes;
  static constexpr int kCopies = 16 * kRowTiles / kCopyRows;  // of a chunk

  // Shared memory: a ring of stages, each the warps' weights and their tokens; then what the blocks
  // of a cluster send each other (shares that are not equal are padded by less than a row a block).
  // With half of the memory or less, the next kernel's weights arrive while this one runs.
  static constexpr int kBlocks = kWarps == 8 ? 2 : 3;
  static constexpr int kSharedMax =
      (225 << 10) * (kRing == ThinRing::half ? 6 / kBlocks : 4) / 6 - 1024;
  static constexpr int kWeightBytes = 16 * kRowTiles * Format::kPitch;
  static constexpr int kXBytes = kTokenTiles * kSteps * 512;
  static constexpr int kStageBytes = kWarps * (kWeightBytes + kXBytes);
  static constexpr int kPartialBytes = kTokens * (kRows + 7) * 4;
  static constexpr int kStages = std::min(8, (kSharedMax - kPartialBytes) / kStageBytes);
  static_assert(kStages >= 3);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes = kRingBytes + kPartialBytes;
  // The warps' sums, in the ring's place: [warps][tokens][pitch].
  static constexpr int kStagingPitch = kRows + 4;  // a warp's stores lie in different banks
  static_assert(kInputGroups * kTokens * kStagingPitch * 4 <= kRingBytes);

  __device__ static int row_group() { return 0; }
  __device__ static int input_group() { return warp_of_thread(); }
};

template <class Tile>
using ThinSums = float[Tile::kRowTiles][Tile::kTokenTiles][4];

// Scales of one chunk, fetched a turn before they are used.
template <class Tile, WeightFormat kFormat = Tile::kFormat>
struct ThinScales;

template <class Tile>
struct ThinScales<Tile, WeightFormat::bf16> {
  __device__ ThinScales(const ThinProduct&, const ThinSide&, int64_t, int64_t) {}
  __device__ void fetch(int32_t) {}
};

// One of the weights (a warp's rows lie in one block of 128), one of each token.
template <class Tile>
struct ThinScales<Tile, WeightFormat::fp8_block128> {
  const float* row;
  const float* token;  // of column 2t, or null: all are 1
  int32_t token_step[Tile::kTokenTiles][2];
  float row_scale;
  float token_scale[Tile::kTokenTiles][2];

  __device__ ThinScales(const ThinProduct& p, const ThinSide& side, int64_t warp_row,
                        int64_t first_token)
      : row(static_cast<const float*>(side.weight.scales) +
            min(warp_row, side.n_out - 1) / kFp8Block * side.weight.scale_stride),
        token(p.x_scale) {
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
      for (int i = 0; i < 2; ++i) {
        const int64_t at = first_token + 8 * j + 2 * (lane_of_thread() % 4) + i;
        token_step[j][i] = static_cast<int32_t>(min(at, p.n_tokens - 1) * p.x_scale_stride);
        token_scale[j][i] = 1.0F;
      }
    }
  }
  __device__ void fetch(int32_t chunk) {
    const int32_t block = chunk * Tile::kInputs / static_cast<int32_t>(kFp8Block);
    row_scale = row[block];
    if (token == nullptr) return;
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
      for (int i = 0; i < 2; ++i) token_scale[j][i] = token[token_step[j][i] + block];
    }
  }
  // Of a part of the chunk, row `half` of the fragment, column `i` of tile j.
  __device__ float of(int, int, int j, int i) const { return row_scale * token_scale[j][i]; }
};

// Two of each row: of the chunk's first and second step.
template <class Tile>
struct ThinScales<Tile, WeightFormat::int4_group> {
  const bf16* row[Tile::kRowTiles][2];
  int group;
  uint32_t pair[Tile::kRowTiles][2];

  __device__ ThinScales(const ThinProduct& p, const ThinSide& side, int64_t warp_row, int64_t)
      : group(p.group) {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
      for (int i = 0; i < 2; ++i) {
        const int64_t at = warp_row + 16 * m + lane_of_thread() / 4 + 8 * i;
        row[m][i] = static_cast<const bf16*>(side.weight.scales) +
                    min(at, side.n_out - 1) * side.weight.scale_stride;
      }
    }
  }
  __device__ void fetch(int32_t chunk) {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
      for (int i = 0; i < 2; ++i) {
        if (group == 32) {
          pair[m][i] = reinterpret_cast<const uint32_t*>(row[m][i])[chunk];
        } else {
          const uint32_t one = reinterpret_cast<const uint16_t*>(row[m][i])[chunk / 2];
          pair[m][i] = one | one << 16;
        }
      }
    }
  }
  __device__ float of(int part, int half, int, int) const {
    return __uint_as_float(part == 0 ? pair[0][half] << 16 : pair[0][half] & 0xffff0000U);
  }
};

// Fetches the scales of `chunk`, or of the last one there is: a warp past the end has no use for
// them, and reads all the same.
template <class Tile>
__device__ void fetch_scales(ThinScales<Tile>* scales, int32_t chunk, int32_t chunk_end) {
  scales->fetch(max(min(chunk, chunk_end - 1), 0));
}

struct ThinPairs {
  uint32_t pair[4];
};

// A lane's eight weights of a row, as bfloat16 pairs in the order of `x_pairs`.
template <class Tile>
__device__ ThinPairs weight_pairs(const std::byte* weights, int row, int step, int t) {
  const std::byte* at = weights + row * Tile::kPitch;
  if constexpr (Tile::kFormat == WeightFormat::bf16) {
    const uint4 v = *reinterpret_cast<const uint4*>(at + 16 * t);
    return {{v.x, v.y, v.z, v.w}};
  } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
    const uint2 v = *reinterpret_cast<const uint2*>(at + 32 * step + 8 * t);
    return {{bits_of(e4m3_high_bytes_to_bf16(__byte_perm(v.x, 0, 0x1404))),
             bits_of(e4m3_high_bytes_to_bf16(__byte_perm(v.x, 0, 0x3424))),
             bits_of(e4m3_high_bytes_to_bf16(__byte_perm(v.y, 0, 0x1404))),
             bits_of(e4m3_high_bytes_to_bf16(__byte_perm(v.y, 0, 0x3424)))}};
  } else {
    const uint32_t v = *reinterpret_cast<const uint32_t*>(at + 16 * step + 4 * t);
    ThinPairs out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Inputs i and i + 4. 128 + nibble as bfloat16 is 0x4300 | nibble; less 136 it is nibble - 8.
      uint32_t biased = (v >> (4 * i) & 0x000f000fU) | 0x43004300U;
      const bf16x2 eight_more = __float2bfloat162_rn(136.0F);
      out.pair[i] = bits_of(__hsub2(*reinterpret_cast<bf16x2*>(&biased), eight_more));
    }
    return out;
  }
}

template <class Tile>
__device__ ThinPairs x_pairs(uint4 v) {
  if constexpr (Tile::kFormat != WeightFormat::int4_group) return {{v.x, v.y, v.z, v.w}};
  return {{__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
           __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)}};
}

// sums += 32 inputs of the warp's rows and tokens.
template <class Tile>
__device__ void add_step(const std::byte* weights, const std::byte* x, int step,
                         ThinSums<Tile>& sums) {
  const int lane = lane_of_thread();
  ThinPairs b[Tile::kTokenTiles];
#pragma unroll
  for (int j = 0; j < Tile::kTokenTiles; ++j) {
    b[j] = x_pairs<Tile>(
        *reinterpret_cast<const uint4*>(x + (j * Tile::kSteps + step) * 512 + 16 * lane));
  }
  MmaA a[Tile::kRowTiles][2];
#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m) {
    const ThinPairs low = weight_pairs<Tile>(weights, 16 * m + lane / 4, step, lane % 4);
    const ThinPairs high = weight_pairs<Tile>(weights, 16 * m + lane / 4 + 8, step, lane % 4);
    a[m][0] = {low.pair[0], high.pair[0], low.pair[1], high.pair[1]};
    a[m][1] = {low.pair[2], high.pair[2], low.pair[3], high.pair[3]};
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < Tile::kTokenTiles; ++j) {
        mma_bf16(sums[m][j], a[m][half], b[j].pair[2 * half], b[j].pair[2 * half + 1]);
      }
    }
  }
}

template <class Tile>
__device__ void add_chunk(const std::byte* weights, const std::byte* x,
                          const ThinScales<Tile>& scales, ThinSums<Tile>& acc) {
  if constexpr (Tile::kFormat == WeightFormat::bf16) {
    add_step<Tile>(weights, x, 0, acc);
  } else if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
    ThinSums<Tile> part = {};
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) add_step<Tile>(weights, x, step, part);
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
      const float left = scales.row_scale * scales.token_scale[j][0];
      const float right = scales.row_scale * scales.token_scale[j][1];
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[m][j][i] = fmaf(part[m][j][i], i % 2 == 0 ? left : right, acc[m][j][i]);
        }
      }
    }
  } else {
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      ThinSums<Tile> part = {};
      add_step<Tile>(weights, x, step, part);
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t both = scales.pair[m][i];
          const float scale = __uint_as_float(step == 0 ? both << 16 : both & 0xffff0000U);
#pragma unroll
          for (int j = 0; j < Tile::kTokenTiles; ++j) {
            acc[m][j][2 * i] = fmaf(part[m][j][2 * i], scale, acc[m][j][2 * i]);
            acc[m][j][2 * i + 1] = fmaf(part[m][j][2 * i + 1], scale, acc[m][j][2 * i + 1]);
          }
        }
      }
    }
  }
}

}  // namespace quire::cuda
