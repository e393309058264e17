#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_rows.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

struct SortParams {
  const int32_t* experts;  // [n_tokens, top_k]
  int64_t stride;          // elements between tokens
  int n_pairs;
  int top_k;
  ExpertRows rows;
};

// One expert a block: counts the pairs of lower experts, then writes its own in order. Grid
// n_experts, 256 threads, 36 bytes of shared memory. Every block reads all pairs twice (from the
// second-level cache): no counters in global memory, no order of arrival.
__global__ __launch_bounds__(kThreads) void sort_kernel(const __grid_constant__ SortParams p) {
  __shared__ int shared[kWarps];
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const auto expert_of = [&](int pair) {
    return p.experts[pair / p.top_k * p.stride + pair % p.top_k];
  };
  int below = 0;
  for (int pair = static_cast<int>(threadIdx.x); pair < p.n_pairs; pair += kThreads) {
    below += expert_of(pair) < expert ? 1 : 0;
  }
  int at = block_sum<kWarps>(below, shared);
  if (threadIdx.x == 0) p.rows.begin[expert] = at;
  for (int first = 0; first < p.n_pairs; first += kThreads) {
    const int pair = first + static_cast<int>(threadIdx.x);
    const bool is_mine = pair < p.n_pairs && expert_of(pair) == expert;
    const uint32_t mine = __ballot_sync(kFullWarp, is_mine);
    __syncthreads();  // the counts of the turn before were read
    if (lane_of_thread() == 0) shared[warp_of_thread()] = __popc(mine);
    __syncthreads();
    int before = at;
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < warp_of_thread()) before += shared[warp];
      at += shared[warp];
    }
    const uint32_t lower_lanes = (1U << lane_of_thread()) - 1;
    if (is_mine) p.rows.pairs[before + __popc(mine & lower_lanes)] = pair;
  }
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) p.rows.begin[expert + 1] = at;
}

struct SumParams {
  bf16* out;               // [n_tokens, hidden]
  const bf16* x;           // [n_tokens * top_k, hidden]
  const bf16* shared;      // [n_tokens, hidden], or null
  const float* weights;    // [n_tokens, top_k]
  int64_t out_stride;      // elements between tokens
  int64_t weights_stride;  // elements between tokens
  int64_t hidden;
  int top_k;
};

// 256 values of a token a block. Grid (hidden / 256, n_tokens), no shared memory. Moves
// 2 * (top_k + 1) bytes a value: bound by memory. Products and sums round on their own.
__global__ __launch_bounds__(kThreads) void sum_slots_kernel(const __grid_constant__ SumParams p) {
  const int64_t token = blockIdx.x;
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= p.hidden) return;
  float sum = 0;
  for (int k = 0; k < p.top_k; ++k) {
    const float x = __bfloat162float(p.x[(token * p.top_k + k) * p.hidden + i]);
    sum = __fadd_rn(sum, __fmul_rn(p.weights[token * p.weights_stride + k], x));
  }
  if (p.shared != nullptr) sum += __bfloat162float(p.shared[token * p.hidden + i]);
  p.out[token * p.out_stride + i] = __float2bfloat16_rn(sum);
}

}  // namespace

void sort_by_expert(const Context& context, const View<const int32_t, 2>& experts,
                    int64_t n_experts, const ExpertRows& rows) {
  CHECK(experts.size() < int64_t{1} << 31);
  const SortParams p{.experts = experts.data,
                     .stride = experts.stride[0],
                     .n_pairs = static_cast<int>(experts.size()),
                     .top_k = static_cast<int>(experts[1]),
                     .rows = rows};
  sort_kernel<<<static_cast<unsigned>(n_experts), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

void sum_slots(const Context& context, const WeightedSum& args) {
  const SumParams p{.out = device_type(args.out.data),
                    .x = device_type(args.x),
                    .shared = device_type(args.shared),
                    .weights = args.weights.data,
                    .out_stride = args.out.stride[0],
                    .weights_stride = args.weights.stride[0],
                    .hidden = args.out[1],
                    .top_k = static_cast<int>(args.weights[1])};
  const dim3 grid(static_cast<unsigned>(args.out[0]),
                  static_cast<unsigned>(div_up(args.out[1], kThreads)));
  sum_slots_kernel<<<grid, kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
