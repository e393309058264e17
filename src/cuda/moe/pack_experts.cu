#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_bank.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = kGroupTiles * kStepValueBytes / 16;  // a thread, 16 bytes of a step

// The row of a source that a row of a tile is.
struct SourceRow {
  RawMatrix matrix;
  int64_t row;  // -1: past the end
};

__device__ SourceRow source_row(const PackMatrices& p, int64_t expert, int64_t tile, int row) {
  SourceRow out{};
  if (p.n_sources == 2) {
    out.matrix = p.sources[expert * 2 + row / 8];
    out.row = tile * 8 + row % 8;
  } else {
    out.matrix = p.sources[expert];
    out.row = tile * kTileRows + row;
  }
  if (out.row >= p.n_out) out.row = -1;
  return out;
}

// An element of a row; `zero` past its end.
template <class T>
__device__ uint32_t bits_at(const SourceRow& from, int64_t index, int64_t n, uint32_t zero) {
  if (from.row < 0 || index >= n) return zero;
  const auto* row =
      static_cast<const std::byte*>(from.matrix.values) + from.row * from.matrix.value_stride;
  return reinterpret_cast<const T*>(row)[index];
}

// Inputs k .. k + 7 of one row as INT4, in register e of A and e + 2; words are not turned yet.
__device__ void add_int4(const SourceRow& from, int64_t k, int64_t n_in, int e,
                         uint32_t (&word)[2]) {
  constexpr uint32_t kZeros = 0x88;  // of value 0
  for (int i = 0; i < 8; i += 2) {
    const uint32_t byte = bits_at<uint8_t>(from, (k + i) / 2, n_in / 2, kZeros);
    const int shift = 4 * (e + 2 * (i % 4 / 2));
    word[i / 4] |= (byte & 15) << shift | (byte >> 4) << (16 + shift);
  }
}

__device__ uint4 pack_int4(const PackMatrices& p, const SourceRow (&rows)[2], int64_t k) {
  uint32_t words[2][2] = {};
  for (int piece = 0; piece < 2; ++piece) {
    for (int e = 0; e < 2; ++e) add_int4(rows[e], k + 32 * piece, p.n_in, e, words[piece]);
  }
  const auto turned = [](uint32_t word) { return __funnelshift_r(word, word, 1); };
  return {turned(words[0][0]), turned(words[0][1]), turned(words[1][0]), turned(words[1][1])};
}

// Inputs 0 and 1 of four go to bytes 1 and 3, inputs 2 and 3 to bytes 0 and 2.
__device__ uint32_t pack_fp8(const SourceRow& from, int64_t k, int64_t n_in) {
  const auto at = [&](int i) { return bits_at<uint8_t>(from, k + i, n_in, 0); };
  return at(2) | at(0) << 8 | at(3) << 16 | at(1) << 24;
}

__device__ uint32_t pack_bf16(const SourceRow& from, int64_t k, int64_t n_in) {
  return bits_at<uint16_t>(from, k, n_in, 0) | bits_at<uint16_t>(from, k + 1, n_in, 0) << 16;
}

// The scales of a tile's step; called by 32 threads.
__device__ void pack_scales(const PackMatrices& p, int64_t expert, int64_t tile, int64_t k,
                            std::byte* to) {
  const int lane = lane_of_thread();
  // Whole sectors, since kernels copy them whole.
  constexpr int kFp8Floats = (kStepBytes<WeightFormat::fp8_block128> - kStepValueBytes) / 4;
  if (p.to.format == WeightFormat::fp8_block128 && lane < kFp8Floats) {
    float scale = 0;
    const SourceRow from = source_row(p, expert, tile, lane < 2 ? 8 * lane : 0);
    if (lane < 2 && from.row >= 0 && k < p.n_in) {
      scale = static_cast<const float*>(
          from.matrix.scales)[from.row / kFp8Block * from.matrix.scale_stride + k / kFp8Block];
    }
    reinterpret_cast<float*>(to)[lane] = scale;
  }
  if (p.to.format != WeightFormat::int4_group) return;
  for (int i = lane; i < 64; i += kWarpSize) {
    const SourceRow from = source_row(p, expert, tile, i / 8 + 8 * (i % 8 / 4));
    const int64_t input = k + i % 4 * kInt4ScaleInputs;
    uint16_t scale = 0;
    if (from.row >= 0 && input < p.n_in) {
      scale = static_cast<const uint16_t*>(
          from.matrix.scales)[from.row * from.matrix.scale_stride + input / p.scale_inputs];
    }
    reinterpret_cast<uint16_t*>(to)[i] = scale;
  }
}

// One step of a group a block: 64 threads a tile. Grid (steps of all groups, experts), 256 threads,
// no shared memory. Reads and writes the weights once, in pieces: a tenth of a second for all
// layers of Kimi K2 at a tenth of the bandwidth.
__global__ __launch_bounds__(kThreads) void pack_kernel(const __grid_constant__ PackMatrices p) {
  const int64_t expert = blockIdx.y;
  const int64_t group = blockIdx.x / p.to.n_steps;
  const int64_t step = blockIdx.x % p.to.n_steps;
  const int tile_of_group = static_cast<int>(threadIdx.x) / 64;
  const int64_t tile = group * kGroupTiles + tile_of_group;
  const int load = static_cast<int>(threadIdx.x) % 64 / 32;  // which of a lane's two
  const int g = lane_of_thread() / 4;
  const int t = lane_of_thread() % 4;
  const int64_t bytes = p.to.step_bytes;
  std::byte* out = const_cast<std::byte*>(p.to.data) + expert * p.to.expert_bytes +
                   (int64_t{blockIdx.x} * kGroupTiles + tile_of_group) * bytes;
  const int64_t k = step * p.to.step_inputs + 8 * t;
  const SourceRow rows[2] = {source_row(p, expert, tile, g), source_row(p, expert, tile, g + 8)};
  uint4 v{};
  switch (p.to.format) {
    case WeightFormat::bf16: {
      const SourceRow& row = rows[load];
      v = {pack_bf16(row, k, p.n_in), pack_bf16(row, k + 2, p.n_in), pack_bf16(row, k + 4, p.n_in),
           pack_bf16(row, k + 6, p.n_in)};
      break;
    }
    case WeightFormat::fp8_block128: {
      const int64_t at = k + 32 * load;
      v = {pack_fp8(rows[0], at, p.n_in), pack_fp8(rows[0], at + 4, p.n_in),
           pack_fp8(rows[1], at, p.n_in), pack_fp8(rows[1], at + 4, p.n_in)};
      break;
    }
    case WeightFormat::int4_group:
      v = pack_int4(p, rows, k + 64 * load);
      break;
  }
  reinterpret_cast<uint4*>(out)[load * 32 + lane_of_thread()] = v;
  if (load == 0) pack_scales(p, expert, tile, k - 8 * t, out + kStepValueBytes);
}

}  // namespace

void pack_matrices(const Context& context, const PackMatrices& args) {
  CHECK(args.to.n_experts < 65536);  // grid.y
  const dim3 grid(static_cast<unsigned>(args.to.n_groups * args.to.n_steps),
                  static_cast<unsigned>(args.to.n_experts));
  pack_kernel<<<grid, kThreads, 0, context.stream>>>(args);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
