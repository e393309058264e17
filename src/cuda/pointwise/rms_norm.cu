// rms_norm and add_rms_norm.
#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/kernels.h"
#include "cuda/pointwise/norm.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

struct Params {
  bf16* out;           // [n_tokens, dim]
  const bf16* x;       // [n_tokens, dim]
  const bf16* weight;  // [dim]
  bf16* h;             // [n_tokens, dim]: x, written with delta added; null: nothing is added
  const bf16* delta;   // [n_tokens, dim]
  int64_t out_stride;  // elements between rows, of each
  int64_t x_stride;
  int64_t delta_stride;
  int64_t dim;
  float eps;
  bool is_aligned;  // rows are at 16 bytes, and a thread holds eight values
};

__device__ float add_values(float a, float b) { return __fadd_rn(a, b); }

// One token a block. Grid n_tokens, a thread for eight values, 32 to 1,024 threads, 128 bytes of
// shared memory. Moves 4 * dim bytes a token, or 8 * dim with a sum: bound by the launch for a
// decode step's tokens.
__global__ __launch_bounds__(kNormThreadsMax) void rms_norm_kernel(
    const __grid_constant__ Params p) {
  __shared__ float shared[kNormWarpsMax];
  const bf16* x = p.x + int64_t{blockIdx.x} * p.x_stride;
  bf16* h = p.h == nullptr ? nullptr : p.h + int64_t{blockIdx.x} * p.x_stride;
  const bf16* delta = p.delta == nullptr ? nullptr : p.delta + int64_t{blockIdx.x} * p.delta_stride;
  bf16* out = p.out + int64_t{blockIdx.x} * p.out_stride;
  let_next_kernel_begin();
  if (!p.is_aligned) {
    wait_for_earlier_kernels();
    for (int64_t i = threadIdx.x; h != nullptr && i < p.dim; i += blockDim.x) {
      h[i] = __float2bfloat16_rn(add_values(__bfloat162float(h[i]), __bfloat162float(delta[i])));
    }
    __syncthreads();  // other threads' sums are read
    return norm_values({.x = h != nullptr ? h : x, .weight = p.weight, .dim = p.dim, .eps = p.eps},
                       out, shared);
  }
  const uint4 weight = load_vector(p.weight, p.dim);
  wait_for_earlier_kernels();
  uint4 row = load_vector(x, p.dim);
  if (h != nullptr) {
    row = combine(row, load_vector(delta, p.dim), add_values);
    store_vector(h, p.dim, row);
  }
  norm(row, weight, p.dim, p.eps, shared);
  store_vector(out, p.dim, row);
}

template <class T>
bool rows_at_16(const View<T, 2>& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride[0] % 8 == 0;
}

bool is_at_16(const Bf16* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void launch_norm(const Context& context, const Params& p, int64_t n_tokens) {
  prefer_shared_memory(rms_norm_kernel);  // for blocks of the product behind it
  const int64_t n_threads =
      std::min<int64_t>(round_up(div_up(p.dim, 8), kWarpSize), kNormThreadsMax);
  launch(context.stream,
         {.grid = static_cast<unsigned>(n_tokens), .threads = static_cast<unsigned>(n_threads)},
         rms_norm_kernel, p);
}

}  // namespace

void rms_norm(const Context& context, const ops::RmsNorm& args) {
  launch_norm(context,
              {.out = device_type(args.out.data),
               .x = device_type(args.x.data),
               .weight = device_type(args.weight.data),
               .h = nullptr,
               .delta = nullptr,
               .out_stride = args.out.stride[0],
               .x_stride = args.x.stride[0],
               .delta_stride = 0,
               .dim = args.out[1],
               .eps = args.eps,
               .is_aligned = fits_norm(args.out[1], kNormThreadsMax) && rows_at_16(args.out) &&
                             rows_at_16(args.x) && is_at_16(args.weight.data)},
              args.out[0]);
}

void add_rms_norm(const Context& context, const ops::AddRmsNorm& args) {
  launch_norm(
      context,
      {.out = device_type(args.out.data),
       .x = device_type(args.h.data),
       .weight = device_type(args.weight.data),
       .h = device_type(args.h.data),
       .delta = device_type(args.delta.data),
       .out_stride = args.out.stride[0],
       .x_stride = args.h.stride[0],
       .delta_stride = args.delta.stride[0],
       .dim = args.out[1],
       .eps = args.eps,
       .is_aligned = fits_norm(args.out[1], kNormThreadsMax) && rows_at_16(args.out) &&
                     rows_at_16(args.h) && rows_at_16(args.delta) && is_at_16(args.weight.data)},
      args.out[0]);
}

}  // namespace quire::cuda
