#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

struct Params {
  bf16* out;           // [n_tokens, dim]
  const bf16* x;       // [n_tokens, dim]
  const bf16* weight;  // [dim]
  int64_t out_stride;  // elements between rows
  int64_t x_stride;    // elements between rows
  int64_t dim;
  float eps;
};

// One token a block. Grid n_tokens, 256 threads, 32 bytes of shared memory. Moves 4 * dim bytes a
// token (the second read of x comes from the first-level cache): bound by memory.
__global__ __launch_bounds__(kThreads) void rms_norm_kernel(const __grid_constant__ Params p) {
  __shared__ float shared[kWarps];
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const bf16* x = p.x + int64_t{blockIdx.x} * p.x_stride;
  bf16* out = p.out + int64_t{blockIdx.x} * p.out_stride;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) {
    const float value = __bfloat162float(x[i]);
    sum += value * value;
  }
  sum = block_sum<kWarps>(sum, shared);
  const float mean = __fdiv_rn(sum, static_cast<float>(p.dim));
  const float factor = __fdiv_rn(1.0F, __fsqrt_rn(mean + p.eps));
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) {
    const bf16 normalised = __float2bfloat16_rn(__bfloat162float(x[i]) * factor);
    out[i] = __float2bfloat16_rn(__bfloat162float(normalised) * __bfloat162float(p.weight[i]));
  }
}

}  // namespace

void rms_norm(const Context& context, const ops::RmsNorm& args) {
  const Params p{.out = device_type(args.out.data),
                 .x = device_type(args.x.data),
                 .weight = device_type(args.weight.data),
                 .out_stride = args.out.stride[0],
                 .x_stride = args.x.stride[0],
                 .dim = args.out[1],
                 .eps = args.eps};
  launch(context.stream, {.grid = static_cast<unsigned>(args.out[0]), .threads = kThreads},
         rms_norm_kernel, p);
}

}  // namespace quire::cuda
