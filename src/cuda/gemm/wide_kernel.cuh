// The kernel for more than a few tokens, on a warpgroup's asynchronous products: weights of 128
// rows and 64 tokens a block, BF16 weights multiplied where they lie, others converted on their way
// through registers.
//
// Shares its scales and its end with the thin kernel (thin_tile.cuh, thin_finish.cuh): to them it
// is a tile whose eight warps hold 16 rows each.
#pragma once

#include "cuda/common/launch.cuh"
#include "cuda/gemm/thin_finish.cuh"
#include "cuda/gemm/thin_tile.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/warpgroup.cuh"

namespace quire::cuda {

template <WeightFormat kFormat_>
struct WideTile {
  static constexpr WeightFormat kFormat = kFormat_;
  static constexpr int kTokenTiles = 8;
  static constexpr int kTokens = 64;
  static constexpr int kRowTiles = 1;
  static constexpr int kWarps = 8;  // two warpgroups
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRows = 128;
  static constexpr int kInputGroups = 1;
  static constexpr int kInputs = 64;  // of a chunk: a swizzled row
  static constexpr int kBlocks = 2;

  static constexpr int kRowBytes = kFormat == WeightFormat::bf16           ? 128
                                   : kFormat == WeightFormat::fp8_block128 ? 64
                                                                           : 32;
  // Converted weights are read by the bytes of a fragment: odd multiples of 16 bytes keep a warp's
  // eight rows in different banks.
  static constexpr int kPitch = kFormat == WeightFormat::bf16 ? 128 : kRowBytes + 16;
  static constexpr int kRowPieces = kRowBytes / 16;
  static constexpr int kCopies = kRows * kRowPieces / kThreads;
  static constexpr int kXCopies = kTokens * 8 / kThreads;

  static constexpr int kXBytes = kTokens * 128;
  static constexpr int kWeightBytes = kRows * kPitch;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;
  static_assert(kStageBytes % 1024 == 0);  // the swizzle's unit
  static constexpr int kPartialBytes = kTokens * (kRows + 7) * 4;
  static constexpr int kStages = std::min(6, ((111 << 10) - kPartialBytes) / kStageBytes);
  static_assert(kStages >= 3);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes = kRingBytes + kPartialBytes;
  static constexpr int kStagingPitch = kRows + 4;
  static_assert(kTokens * kStagingPitch * 4 <= kRingBytes);

  __device__ static int row_group() { return warp_of_thread(); }
  __device__ static int input_group() { return 0; }
};

// What a thread copies: piece thread % pieces of every (threads / pieces)-th row.
template <class Tile>
struct WideCursor {
  const std::byte* row[Tile::kCopies];
  const bf16* x[Tile::kXCopies];
  int x_bytes[Tile::kXCopies];    // of a copy: 16, or 0 past the last token
  int32_t weight_chunk, x_chunk;  // that come next

  __device__ WideCursor(const ThinProduct& p, const ThinSide& side, const ThinPlace& place)
      : weight_chunk(place.chunk_begin), x_chunk(place.chunk_begin) {
    const auto thread = static_cast<int>(threadIdx.x);
    const auto* weights =
        static_cast<const std::byte*>(side.weight.values) + place.batch * p.weight_batch_bytes +
        int64_t{place.chunk_begin} * Tile::kRowBytes + 16 * (thread % Tile::kRowPieces);
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      // Rows past the end read the last one, and are not written.
      const int64_t at = place.first_row + weight_row(i);
      row[i] = weights + min(at, side.n_out - 1) * side.weight.value_stride;
    }
    const bf16* inputs = reinterpret_cast<const bf16*>(p.x) + place.batch * p.x_batch +
                         int64_t{place.chunk_begin} * Tile::kInputs + 8 * (thread % 8);
#pragma unroll
    for (int i = 0; i < Tile::kXCopies; ++i) {
      const int64_t token = place.first_token + x_row(i);
      x[i] = inputs + min(token, p.n_tokens - 1) * p.x_stride;
      x_bytes[i] = token < p.n_tokens ? 16 : 0;
    }
  }
  __device__ static int weight_row(int i) {
    return (static_cast<int>(threadIdx.x) + i * Tile::kThreads) / Tile::kRowPieces;
  }
  __device__ static int x_row(int i) {
    return (static_cast<int>(threadIdx.x) + i * Tile::kThreads) / 8;
  }

  // Both copy the next chunk to a stage of the ring and go on.
  __device__ void copy_weights(const ThinProduct& p, const ThinPlace& place, uint32_t to) {
    const int piece = static_cast<int>(threadIdx.x) % Tile::kRowPieces;
    int bytes = 16;
    if (weight_chunk >= place.n_whole) {
      const int64_t row_bytes = p.n_in * Tile::kRowBytes / Tile::kInputs;
      bytes = bytes_left(row_bytes - int64_t{weight_chunk} * Tile::kRowBytes - 16 * piece);
    }
#pragma unroll
    for (int i = 0; i < Tile::kCopies; ++i) {
      const uint32_t at = Tile::kFormat == WeightFormat::bf16
                              ? swizzled_piece(weight_row(i), piece)
                              : static_cast<uint32_t>(weight_row(i) * Tile::kPitch + 16 * piece);
      copy_async_16(to + at, row[i], bytes);
      row[i] += Tile::kRowBytes;
    }
    ++weight_chunk;
  }
  __device__ void copy_x(const ThinProduct& p, const ThinPlace& place, uint32_t to) {
    const int piece = static_cast<int>(threadIdx.x) % 8;
    int bytes = 16;
    if (x_chunk >= place.n_whole) {
      bytes = bytes_left(2 * (p.n_in - int64_t{x_chunk} * Tile::kInputs - 8 * piece));
    }
#pragma unroll
    for (int i = 0; i < Tile::kXCopies; ++i) {
      copy_async_16(to + swizzled_piece(x_row(i), piece), x[i], min(bytes, x_bytes[i]));
      x[i] += Tile::kInputs;
    }
    ++x_chunk;
  }
};

// The warp's fragment of 16 inputs, converted: of rows g and g + 8, inputs 2t, 2t + 1 and 8 more.
template <class Tile>
__device__ MmaA converted(const std::byte* weights, int step) {
  const int lane = lane_of_thread();
  const std::byte* low = weights + (16 * warp_of_thread() + lane / 4) * Tile::kPitch;
  const std::byte* high = low + 8 * Tile::kPitch;
  if constexpr (Tile::kFormat == WeightFormat::fp8_block128) {
    const auto pair = [&](const std::byte* row, int first) {
      const auto two = *reinterpret_cast<const uint16_t*>(row + 16 * step + first + 2 * (lane % 4));
      return bits_of(e4m3_high_bytes_to_bf16(__byte_perm(two, 0, 0x1404)));
    };
    return {pair(low, 0), pair(high, 0), pair(low, 8), pair(high, 8)};
  } else {
    const auto pair = [&](const std::byte* row, int first) {
      const auto two =
          static_cast<uint32_t>(row[8 * step + first + lane % 4]);  // nibbles of neighbours
      // 128 + nibble as bfloat16 is 0x4300 | nibble; less 136 it is nibble - 8, exactly.
      uint32_t biased = ((two | two << 12) & 0x000f000fU) | 0x43004300U;
      return bits_of(__hsub2(*reinterpret_cast<bf16x2*>(&biased), __float2bfloat162_rn(136.0F)));
    };
    return {pair(low, 0), pair(high, 0), pair(low, 4), pair(high, 4)};
  }
}

// acc += a chunk of the warp's rows.
template <class Tile>
__device__ void add_wide_chunk(const std::byte* weights, uint32_t weights_at, uint32_t x_at,
                               const ThinScales<Tile>& scales, float (&acc)[32]) {
  if constexpr (Tile::kFormat == WeightFormat::bf16) {
    const uint32_t rows_at = weights_at + static_cast<uint32_t>(warp_of_thread() / 4) * 64 * 128;
    begin_products();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_64(acc, operand_along_k(rows_at, step), operand_along_k(x_at, step));
    }
    finish_products(acc);
  } else {
    MmaA a[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) a[step] = converted<Tile>(weights, step);
    // Inputs that share a scale: a chunk of FP8, half of one of INT4.
    constexpr int kParts = Tile::kFormat == WeightFormat::fp8_block128 ? 1 : 2;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float sums[32] = {};
      begin_products();
#pragma unroll
      for (int step = 4 / kParts * part; step < 4 / kParts * (part + 1); ++step) {
        multiply_64(sums, a[step], operand_along_k(x_at, step));
      }
      finish_products(sums);
#pragma unroll
      for (int j = 0; j < Tile::kTokenTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[4 * j + i] = fmaf(sums[4 * j + i], scales.of(part, i / 2, j, i % 2), acc[4 * j + i]);
        }
      }
    }
  }
}

// Work of a block: 128 outputs of one side and batch, 64 tokens, a share of k; a cluster has all of
// k. Grid (cluster, row tiles * batch, token tiles), 256 threads, up to 111 KB of shared memory.
// Moves the weights once for each tile of tokens, the tokens once for each tile of rows: bound by
// memory for one tile of tokens, by the second-level cache for many.
template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocks) void wide_kernel(
    const __grid_constant__ ThinParams params) {
  extern __shared__ __align__(1024) std::byte wide_shared[];
  const ThinProduct& p = params.product;
  arrive_at_cluster();
  let_next_kernel_begin();
  const ThinPlace place = place_of<Tile>(params);
  const ThinSide& side = p.sides[place.side];
  constexpr int kAhead = Tile::kStages - 1;
  WideCursor<Tile> cursor(p, side, place);
  const uint32_t ring = shared_address(wide_shared);  // a stage: tokens, then weights
  ThinScales<Tile> scales(p, side, place.first_row + 16 * warp_of_thread(), place.first_token);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (cursor.weight_chunk < place.chunk_end) {
      cursor.copy_weights(p, place, ring + i * Tile::kStageBytes + Tile::kXBytes);
    }
  }
  wait_for_earlier_kernels();
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (cursor.x_chunk < place.chunk_end) cursor.copy_x(p, place, ring + i * Tile::kStageBytes);
    commit_copies();
  }
  fetch_scales(&scales, place.chunk_begin, place.chunk_end);
  ThinSums<Tile> acc = {};
  auto& flat = reinterpret_cast<float(&)[32]>(acc);
  int stage = 0;  // bytes from the ring's begin
  int free_stage = kAhead * Tile::kStageBytes;
  for (int32_t chunk = place.chunk_begin; chunk < place.chunk_end; ++chunk) {
    wait_for_copies<kAhead - 1>();
    fence_for_tensor_cores();
    __syncthreads();  // all copies are there, and the stage of the turn before was read by all
    if (cursor.x_chunk < place.chunk_end) {
      const uint32_t to = ring + static_cast<uint32_t>(free_stage);
      cursor.copy_weights(p, place, to + Tile::kXBytes);
      cursor.copy_x(p, place, to);
    }
    commit_copies();
    const ThinScales<Tile> now = scales;
    fetch_scales(&scales, chunk + 1, place.chunk_end);
    const uint32_t x_at = ring + static_cast<uint32_t>(stage);
    add_wide_chunk<Tile>(wide_shared + stage + Tile::kXBytes, x_at + Tile::kXBytes, x_at, now,
                         flat);
    constexpr int kEnd = Tile::kStages * Tile::kStageBytes;
    stage = stage + Tile::kStageBytes == kEnd ? 0 : stage + Tile::kStageBytes;
    free_stage = free_stage + Tile::kStageBytes == kEnd ? 0 : free_stage + Tile::kStageBytes;
  }
  wait_for_copies<0>();
  finish<Tile>(p, side, place, reinterpret_cast<float*>(wide_shared),
               reinterpret_cast<float*>(wide_shared + Tile::kRingBytes), acc);
}

}  // namespace quire::cuda
