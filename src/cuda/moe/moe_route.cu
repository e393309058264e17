#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int64_t kExpertsMax = 2048;  // keys of four tokens in 48 KB, with room

struct Params {
  int32_t* experts;        // [n_tokens, top_k]
  float* weights;          // [n_tokens, top_k]
  const float* scores;     // [n_tokens, n_experts]
  const float* bias;       // [n_experts]
  int64_t experts_stride;  // elements between rows, of each
  int64_t weights_stride;
  int64_t scores_stride;
  int64_t n_tokens;
  int n_experts;
  int top_k;
  float scaling;
  ops::RouteWeights mode;
};

__device__ float sigmoid(float x) { return __fdiv_rn(1.0F, 1.0F + expf(-x)); }

// One token a warp: top_k times the largest key of those left. Grid n_tokens / 4, 128 threads,
// 16 * n_experts bytes of shared memory. Moves 4 * n_experts bytes a token: bound by latency.
__global__ __launch_bounds__(kThreads) void moe_route_kernel(const __grid_constant__ Params p) {
  extern __shared__ float shared[];
  float* key = shared + warp_of_thread() * p.n_experts;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp_of_thread();
  if (token >= p.n_tokens) return;
  const int lane = lane_of_thread();
  const float* scores = p.scores + token * p.scores_stride;
  bool found_nan = false;
  for (int e = lane; e < p.n_experts; e += kWarpSize) {
    key[e] = sigmoid(scores[e]) + p.bias[e];
    found_nan |= isnan(key[e]);
  }
  const bool has_nan = __any_sync(kFullWarp, found_nan);
  __syncwarp();
  int32_t* experts = p.experts + token * p.experts_stride;
  float* weights = p.weights + token * p.weights_stride;
  float sum = 0;
  for (int k = 0; k < p.top_k; ++k) {
    Best best{-INFINITY, p.n_experts};
    for (int e = lane; e < p.n_experts; e += kWarpSize) {
      // Chosen ones are NaN by now.
      if (!isnan(key[e])) best = better(best, {key[e], e});
    }
    best = warp_best(best);
    // A row with NaN has no order: the first experts, with NaN weights.
    const int chosen = has_nan ? k : best.index;
    const float probability = sigmoid(scores[chosen]);
    sum += probability;
    if (lane == 0) {
      experts[k] = chosen;
      weights[k] = has_nan ? NAN : probability;
      key[chosen] = NAN;
    }
    __syncwarp();
  }
  const float divisor = p.mode == ops::RouteWeights::normalised ? sum + 1e-20F : 1.0F;
  for (int k = lane; k < p.top_k; k += kWarpSize) {
    weights[k] = __fmul_rn(p.scaling, __fdiv_rn(weights[k], divisor));
  }
}

}  // namespace

void moe_route(const Context& context, const ops::MoeRoute& args) {
  CHECK(args.scores[1] <= kExpertsMax);
  const Params p{.experts = args.experts.data,
                 .weights = args.weights.data,
                 .scores = args.scores.data,
                 .bias = args.bias.data,
                 .experts_stride = args.experts.stride[0],
                 .weights_stride = args.weights.stride[0],
                 .scores_stride = args.scores.stride[0],
                 .n_tokens = args.scores[0],
                 .n_experts = static_cast<int>(args.scores[1]),
                 .top_k = static_cast<int>(args.experts[1]),
                 .scaling = args.scaling,
                 .mode = args.mode};
  const auto blocks = static_cast<unsigned>((p.n_tokens + kWarps - 1) / kWarps);
  const size_t shared = sizeof(float) * static_cast<size_t>(kWarps * p.n_experts);
  moe_route_kernel<<<blocks, kThreads, shared, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
