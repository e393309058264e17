#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/input_order.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kVector = 8;  // inputs of a thread
constexpr int kWords = 4;       // of two inputs, of a thread

enum class Rows { of_whole_vectors, any };

struct Params {
  uint4* to;          // [n_rows, width / 8]
  const uint16_t* x;  // [n_rows, n_in]
  int64_t x_stride;   // elements between rows
  int64_t n_in;
  int64_t row_vectors;  // width / 8
  int64_t n_vectors;
};

// Lane t of each four has row t of 4 x 4 words and gets column t.
__device__ void transpose_four(uint32_t (&word)[kWords]) {
#pragma unroll
  for (int step = 1; step < kWords; step *= 2) {
    const bool is_upper = (lane_of_thread() & step) != 0;
#pragma unroll
    for (int low = 0; low < kWords; ++low) {
      if ((low & step) != 0) continue;
      const int high = low + step;
      const uint32_t other = __shfl_xor_sync(kFullWarp, is_upper ? word[low] : word[high], step);
      (is_upper ? word[low] : word[high]) = other;
    }
  }
}

// Eight inputs of a row a thread, 32 a group of four lanes. 256 threads, no shared memory. Moves 4
// bytes an input: bound by memory.
template <Rows kRows>
__global__ __launch_bounds__(kThreads) void order_kernel(const __grid_constant__ Params p) {
  wait_for_earlier_kernels();
  const int64_t vector = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t first = vector % p.row_vectors * kVector;
  const uint16_t* const x = p.x + vector / p.row_vectors * p.x_stride + first;
  // Of this thread: there may be none, and past the last row nothing is read.
  const int64_t n = vector < p.n_vectors ? p.n_in - first : 0;
  uint32_t word[kWords] = {};
  if constexpr (kRows == Rows::of_whole_vectors) {
    if (n > 0) {
      const uint4 v = *reinterpret_cast<const uint4*>(x);
      word[0] = v.x;
      word[1] = v.y;
      word[2] = v.z;
      word[3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t low = 2 * i < n ? x[2 * i] : 0U;
      const uint32_t high = 2 * i + 1 < n ? x[2 * i + 1] : 0U;
      word[i] = low | high << 16;
    }
  }
  transpose_four(word);
  if (vector < p.n_vectors) p.to[vector] = {word[0], word[1], word[2], word[3]};
}

}  // namespace

void order_inputs(const Context& context, const View<Bf16, 2>& to, const View<const Bf16, 2>& x) {
  CHECK(to[1] % kInputStep == 0 && to[1] >= x[1] && to.stride[0] == to[1]);
  const Params p{.to = reinterpret_cast<uint4*>(to.data),
                 .x = reinterpret_cast<const uint16_t*>(x.data),
                 .x_stride = x.stride[0],
                 .n_in = x[1],
                 .row_vectors = to[1] / kVector,
                 .n_vectors = x[0] * to[1] / kVector};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(div_up(p.n_vectors, kThreads))),
                          .threads = kThreads};
  const bool has_whole_vectors = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
                                 x.stride[0] % kVector == 0 && x[1] % kVector == 0;
  launch(context.stream, shape,
         has_whole_vectors ? order_kernel<Rows::of_whole_vectors> : order_kernel<Rows::any>, p);
}

}  // namespace quire::cuda
