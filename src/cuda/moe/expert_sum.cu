#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/moe/expert_sum.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kVector = 4;  // values of a thread

template <class T>
struct Params {
  bf16* out;               // [n_tokens, width]
  const T* routed;         // [n_tokens * top_k, width]
  const T* shared;         // [n_tokens, width], or null
  const float* weights;    // [n_tokens, top_k]
  int64_t out_stride;      // elements between tokens
  int64_t stride;          // elements between rows of routed and shared
  int64_t weights_stride;  // elements between tokens
  int64_t width;
  int top_k;
};

__device__ float4 load_four(const float* at) { return *reinterpret_cast<const float4*>(at); }

__device__ float4 load_four(const Bf16* at) {
  const uint2 v = *reinterpret_cast<const uint2*>(at);
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000U),
          __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000U)};
}

// 512 values of a token a block. Grid (n_tokens, width / 512), 128 threads, no shared memory.
// Reads top_k + 1 values for each it writes: bound by memory, or by latency where the kernel before
// left them in the second-level cache.
template <class T>
__global__ __launch_bounds__(kThreads) void sum_kernel(const __grid_constant__ Params<T> p) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int64_t token = blockIdx.x;
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (i >= p.width) return;
  const T* routed = p.routed + token * p.top_k * p.stride + i;
  float4 sum{0, 0, 0, 0};
#pragma unroll 8
  for (int k = 0; k < p.top_k; ++k) {
    const float4 x = load_four(routed + k * p.stride);
    const float weight = p.weights[token * p.weights_stride + k];
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
  }
  if (p.shared != nullptr) {
    const float4 x = load_four(p.shared + token * p.stride + i);
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
  }
  const float values[kVector] = {sum.x, sum.y, sum.z, sum.w};
  bf16* out = p.out + token * p.out_stride + i;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    if (i + v < p.width) out[v] = __float2bfloat16_rn(values[v]);
  }
}

template <class T>
void launch_sum(const Context& context, const ExpertSum<T>& args) {
  CHECK(args.stride % kVector == 0);
  const Params<T> p{.out = device_type(args.out.data),
                    .routed = args.routed,
                    .shared = args.shared,
                    .weights = args.weights.data,
                    .out_stride = args.out.stride[0],
                    .stride = args.stride,
                    .weights_stride = args.weights.stride[0],
                    .width = args.out[1],
                    .top_k = static_cast<int>(args.weights[1])};
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.out[0]),
                   static_cast<unsigned>(div_up(args.out[1], kThreads * kVector))),
      .threads = kThreads};
  launch(context.stream, shape, sum_kernel<T>, p);
}

}  // namespace

void sum_experts(const Context& context, const ExpertSum<float>& args) {
  launch_sum(context, args);
}
void sum_experts(const Context& context, const ExpertSum<Bf16>& args) { launch_sum(context, args); }

}  // namespace quire::cuda
