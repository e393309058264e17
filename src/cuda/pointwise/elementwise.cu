// add and silu_mul.
#include <algorithm>

#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksMax = 4096;  // each then walks the rest

struct Params {
  bf16* out;           // [n_tokens, dim]
  const bf16* a;       // [n_tokens, dim]
  const bf16* b;       // [n_tokens, dim]
  int64_t out_stride;  // elements between rows, of each
  int64_t a_stride;
  int64_t b_stride;
  int64_t n_tokens;
  int64_t dim;
};

struct Sum {
  __device__ static bf16 of(bf16 a, bf16 b) {
    return __float2bfloat16_rn(__fadd_rn(__bfloat162float(a), __bfloat162float(b)));
  }
};

struct SiluTimes {
  __device__ static bf16 of(bf16 gate, bf16 up) {
    const float x = __bfloat162float(gate);
    const bf16 silu = __float2bfloat16_rn(__fdiv_rn(x, 1.0F + expf(-x)));
    return __float2bfloat16_rn(__bfloat162float(silu) * __bfloat162float(up));
  }
};

// One value a thread, 256 threads, grid-stride. Moves 6 bytes a value: bound by memory.
template <class Op>
__global__ __launch_bounds__(kThreads) void elementwise_kernel(const __grid_constant__ Params p) {
  const int64_t n = p.n_tokens * p.dim;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t token = i / p.dim;
    const int64_t column = i % p.dim;
    p.out[token * p.out_stride + column] =
        Op::of(p.a[token * p.a_stride + column], p.b[token * p.b_stride + column]);
  }
}

Params params_of(const View<Bf16, 2>& out, const View<const Bf16, 2>& a,
                 const View<const Bf16, 2>& b) {
  return {.out = device_type(out.data),
          .a = device_type(a.data),
          .b = device_type(b.data),
          .out_stride = out.stride[0],
          .a_stride = a.stride[0],
          .b_stride = b.stride[0],
          .n_tokens = out[0],
          .dim = out[1]};
}

template <class Op>
void launch(const Context& context, const Params& p) {
  const int64_t blocks = std::min((p.n_tokens * p.dim + kThreads - 1) / kThreads, kBlocksMax);
  elementwise_kernel<Op><<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace

void add(const Context& context, const ops::Add& args) {
  launch<Sum>(context, params_of(args.out, args.a, args.b));
}

void silu_mul(const Context& context, const ops::SiluMul& args) {
  launch<SiluTimes>(context, params_of(args.out, args.gate, args.up));
}

}  // namespace quire::cuda
