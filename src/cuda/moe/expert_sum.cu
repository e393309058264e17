#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/moe/expert_sum.h"
#include "cuda/moe/packed_layout.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kVector = 8;  // values of a thread
constexpr int kAtOnce = 8;  // rows under way
// Said, so that the compiler takes registers enough: else it puts each load behind the use of the
// last but one.
constexpr int kBlocksPerSm = 8;

struct Params {
  bf16* out;               // [n_tokens, width]
  const Bf16* routed;      // [n_tokens * top_k, width]
  const Bf16* shared;      // [n_tokens, width], or null
  const float* weights;    // [n_tokens, top_k]
  int64_t out_stride;      // elements between tokens
  int64_t stride;          // elements between rows of routed and shared
  int64_t weights_stride;  // elements between tokens
  int64_t width;
  int top_k;
  int32_t* arrived;  // [n_arrived], or null
  int n_arrived;
};

// 16 bytes of a row.
struct Values {
  float at[kVector];

  __device__ explicit Values(const uint4& bits) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      at[2 * i] = __uint_as_float(words[i] << 16);
      at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
  }
};

__device__ uint4 load_vector(const Bf16* at) { return __ldcg(reinterpret_cast<const uint4*>(at)); }

// Which output value `v` of those from value `first` on is.
template <SumOrder kOrder>
__device__ int64_t output_of(int64_t first, int v) {
  if constexpr (kOrder == SumOrder::plain) return first + v;
  return first / kTileRows * kTileRows + first % kTileRows / 2 + v / 2 + v % 2 * 8;
}

// 1,024 values of a token a block. Grid (n_tokens, width / 1,024), 128 threads, no shared memory.
// Reads top_k + 1 values for each it writes: bound by memory, or by latency where the kernel before
// left them in the second-level cache.
template <SumOrder kOrder>
__global__ __launch_bounds__(kThreads,
                             kBlocksPerSm) void sum_kernel(const __grid_constant__ Params p) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  if (p.arrived != nullptr && blockIdx.x == 0 && blockIdx.y == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < p.n_arrived; i += kThreads) p.arrived[i] = 0;
  }
  const int64_t token = blockIdx.x;
  const int64_t first = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (first >= p.stride) return;
  const Bf16* routed = p.routed + token * p.top_k * p.stride + first;
  uint4 of_shared{};
  if (p.shared != nullptr) of_shared = load_vector(p.shared + token * p.stride + first);
  float sum[kVector] = {};
  for (int begin = 0; begin < p.top_k; begin += kAtOnce) {
    uint4 x[kAtOnce];
    float weight[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int k = min(begin + i, p.top_k - 1);
      x[i] = load_vector(routed + k * p.stride);
      weight[i] = p.weights[token * p.weights_stride + k];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= p.top_k) continue;
      const Values values(x[i]);
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] = fmaf(weight[i], values.at[v], sum[v]);
    }
  }
  if (p.shared != nullptr) {
    const Values values(of_shared);
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum[v] += values.at[v];
  }
  bf16* out = p.out + token * p.out_stride;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    const int64_t output = output_of<kOrder>(first, v);
    if (output < p.width) out[output] = __float2bfloat16_rn(sum[v]);
  }
}

}  // namespace

void sum_experts(const Context& context, const ExpertSum& args) {
  CHECK(args.stride % kTileRows == 0);
  const Params p{.out = device_type(args.out.data),
                 .routed = args.routed,
                 .shared = args.shared,
                 .weights = args.weights.data,
                 .out_stride = args.out.stride[0],
                 .stride = args.stride,
                 .weights_stride = args.weights.stride[0],
                 .width = args.out[1],
                 .top_k = static_cast<int>(args.weights[1]),
                 .arrived = args.arrived,
                 .n_arrived = args.n_arrived};
  const int64_t width = round_up(args.out[1], kTileRows);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(args.out[0]),
                                       static_cast<unsigned>(div_up(width, kThreads * kVector))),
                          .threads = kThreads};
  launch(context.stream, shape,
         args.order == SumOrder::plain ? sum_kernel<SumOrder::plain> : sum_kernel<SumOrder::tiles>,
         p);
}

}  // namespace quire::cuda
