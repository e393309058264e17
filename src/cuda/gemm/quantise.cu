#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/quantise.h"
#include "ops/weight_matrix.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;  // one a value of a group
static_assert(kThreads == kFp8Block);

struct Params {
  bf16* values;      // [n_rows, n_in]
  float* scales;     // [n_rows, n_groups]
  const bf16* x;     // [n_rows, n_in]
  int64_t x_stride;  // elements between rows
  int64_t n_in;
  int64_t n_groups;
};

// One group of one row a block. Grid (n_rows, n_groups), 128 threads, 16 bytes of shared memory.
// Moves 4 bytes a value and 4 a group: bound by memory.
__global__ __launch_bounds__(kThreads) void quantise_kernel(const __grid_constant__ Params p) {
  __shared__ float shared[kThreads / kWarpSize];
  const int64_t row = blockIdx.x;
  const int64_t i = int64_t{blockIdx.y} * kFp8Block + threadIdx.x;
  const float x = i < p.n_in ? __bfloat162float(p.x[row * p.x_stride + i]) : 0.0F;
  float amax = warp_max(fabsf(x));
  if (lane_of_thread() == 0) shared[warp_of_thread()] = amax;
  __syncthreads();
  for (const float other : shared) amax = fmaxf(amax, other);
  const float scale = e4m3_scale(amax);
  if (i < p.n_in) {
    p.values[row * p.n_in + i] = __float2bfloat16_rn(from_e4m3(to_e4m3(__fdiv_rn(x, scale))));
  }
  if (threadIdx.x == 0) p.scales[row * p.n_groups + blockIdx.y] = scale;
}

}  // namespace

int64_t quantised_bytes(int64_t n_rows, int64_t n_in) {
  return Workspace::bytes_of<Bf16>(n_rows * n_in) +
         Workspace::bytes_of<float>(n_rows * div_up(n_in, kFp8Block));
}

Quantised quantise(const Context& context, const View<const Bf16, 2>& x) {
  const int64_t n_groups = div_up(x[1], kFp8Block);
  const Quantised out{.values = context.workspace->take<Bf16>(x[0] * x[1]),
                      .scales = context.workspace->take<float>(x[0] * n_groups),
                      .scale_stride = n_groups};
  const Params p{.values = device_type(out.values),
                 .scales = out.scales,
                 .x = device_type(x.data),
                 .x_stride = x.stride[0],
                 .n_in = x[1],
                 .n_groups = n_groups};
  const dim3 grid(static_cast<unsigned>(x[0]), static_cast<unsigned>(n_groups));
  quantise_kernel<<<grid, kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
  return out;
}

}  // namespace quire::cuda
