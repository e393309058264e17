// random_fill: weights that nobody trained, made where they are used.
#include <algorithm>

#include "cuda/common/cuda_must.h"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksMax = 132 * 8;  // eight blocks on each multiprocessor

// Element (r, c) at index first + r * stride + c.
struct Params {
  std::byte* out;  // [n_rows, n_columns]
  RandomKind kind;
  int64_t n;  // n_rows * n_columns, in units of what a thread writes at once
  int64_t n_columns;
  int64_t first;
  int64_t stride;
  uint64_t seed;
  float scale;
};

__device__ int64_t index_of(const Params& p, int64_t i) {
  return p.first + i / p.n_columns * p.stride + i % p.n_columns;
}

// Units i, i + threads, ... a thread. Grid up to 1056, 256 threads, no shared memory. A unit is an
// element, or eight of one byte: arithmetic for 64 random bits a unit, so bytes are bound by memory
// and the others by integer multiplies (about 1.5 TB/s; a few milliseconds of a start).
__global__ __launch_bounds__(kThreads) void elements_kernel(const __grid_constant__ Params p) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.n; i += step) {
    const int64_t index = index_of(p, i);
    switch (p.kind) {
      case RandomKind::normal_bf16:
        reinterpret_cast<Bf16*>(p.out)[i] = random_normal(random_bits(p.seed, index), p.scale);
        break;
      case RandomKind::uniform_bf16:
        reinterpret_cast<Bf16*>(p.out)[i] =
            to_bf16(random_near(random_bits(p.seed, index), p.scale));
        break;
      case RandomKind::uniform_f32:
        reinterpret_cast<float*>(p.out)[i] = random_near(random_bits(p.seed, index), p.scale);
        break;
      case RandomKind::e4m3:
      case RandomKind::nibbles:
        p.out[i] = static_cast<std::byte>(
            random_eight(p.kind, p.seed, index / 8) >> (8 * (index % 8)) & 0xffU);
        break;
    }
  }
}

__global__ __launch_bounds__(kThreads) void eights_kernel(const __grid_constant__ Params p) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.n; i += step) {
    reinterpret_cast<uint64_t*>(p.out)[i] = random_eight(p.kind, p.seed, index_of(p, i));
  }
}

}  // namespace

void random_fill(const Context& context, const ops::RandomFill& args) {
  const RandomArray& values = args.values;
  const bool eights = element_bytes(values.kind) == 1 && values.first % 8 == 0 &&
                      values.stride % 8 == 0 && values.n_columns % 8 == 0 &&
                      reinterpret_cast<uintptr_t>(args.out) % sizeof(uint64_t) == 0;
  const int64_t unit = eights ? 8 : 1;
  const Params p{.out = args.out,
                 .kind = values.kind,
                 .n = values.n_rows * values.n_columns / unit,
                 .n_columns = values.n_columns / unit,
                 .first = values.first / unit,
                 .stride = values.stride / unit,
                 .seed = values.seed,
                 .scale = values.scale};
  const int64_t blocks = std::min((p.n + kThreads - 1) / kThreads, kBlocksMax);
  const auto grid = static_cast<unsigned>(blocks);
  if (eights) {
    eights_kernel<<<grid, kThreads, 0, context.stream>>>(p);
  } else {
    elements_kernel<<<grid, kThreads, 0, context.stream>>>(p);
  }
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
