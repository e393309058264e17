#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/moe/route.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kLaneExperts = 4;  // neighbours, so that a lower lane has lower experts
constexpr int kWarpExperts = kLaneExperts * kWarpSize;
constexpr int kWarpsMax = 16;
constexpr int kTopMax = kWarpSize;

struct Params {
  int32_t* experts;        // [n_tokens, top_k]
  float* weights;          // [n_tokens, top_k]
  const float* scores;     // [n_tokens, n_experts]
  const float* bias;       // [n_experts]
  int64_t experts_stride;  // elements between rows, of each
  int64_t weights_stride;
  int64_t scores_stride;
  int n_experts;
  int top_k;
  float scaling;
  ops::RouteWeights mode;
  NextKernel next;
};

// One that may be chosen. No expert has rank 0: it stands for none.
struct Candidate {
  uint32_t rank;  // the order of p + bias, as whole numbers
  int32_t expert;
  float probability;
};

__device__ float sigmoid(float x) { return __fdiv_rn(1.0F, 1.0F + expf(-x)); }

// x < y gives rank_of(x) < rank_of(y), for all but NaN.
__device__ uint32_t rank_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffU : 0x80000000U);
}

// The lane's best expert; of equal ones the first.
__device__ Candidate best_of(const Candidate (&own)[kLaneExperts]) {
  Candidate best = own[0];
#pragma unroll
  for (int i = 1; i < kLaneExperts; ++i) {
    if (own[i].rank > best.rank) best = own[i];
  }
  return best;
}

// The warp's top_k experts, best first.
__device__ void choose(Candidate (&own)[kLaneExperts], int top_k, Candidate* chosen) {
  Candidate best = best_of(own);
  for (int k = 0; k < top_k; ++k) {
    const uint32_t highest = __reduce_max_sync(kFullWarp, best.rank);
    const uint32_t holders = __ballot_sync(kFullWarp, best.rank == highest);
    if (lane_of_thread() != __ffs(static_cast<int>(holders)) - 1) continue;
    chosen[k] = best;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      if (own[i].expert == best.expert) own[i].rank = 0;
    }
    best = best_of(own);
  }
}

// Where `one` stands among `n`, the best first: warps have ascending experts, so that the earlier
// of equal ones is the lower expert.
__device__ int place_of(const Candidate* all, int n, int one) {
  const uint32_t rank = all[one].rank;
  int place = 0;
  for (int i = 0; i < n; ++i) {
    place += all[i].rank > rank || (all[i].rank == rank && i < one) ? 1 : 0;
  }
  return place;
}

// One token a block: each warp finds the best of its 128 experts in registers, then every one of
// those counts how many are better. Grid n_tokens, 32 threads for each 128 experts, 6.5 KB of
// shared memory. Moves 4 * n_experts bytes a token: bound by latency.
__global__ __launch_bounds__(kWarpsMax* kWarpSize) void route_kernel(
    const __grid_constant__ Params p) {
  __shared__ Candidate found[kWarpsMax * kTopMax];  // [warps][top_k]
  __shared__ float probability[kTopMax];
  if (p.next == NextKernel::beside_earlier) let_next_kernel_begin();
  const int64_t token = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const float* scores = p.scores + token * p.scores_stride;
  Candidate own[kLaneExperts];
  float bias[kLaneExperts];
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    own[i] = {.rank = 0, .expert = kLaneExperts * thread + i, .probability = 0};
    bias[i] = own[i].expert < p.n_experts ? p.bias[own[i].expert] : 0;
  }
  wait_for_earlier_kernels();
  if (p.next == NextKernel::behind_earlier) let_next_kernel_begin();
  bool found_nan = false;
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i) {
    if (own[i].expert >= p.n_experts) continue;
    own[i].probability = sigmoid(scores[own[i].expert]);
    const float key = own[i].probability + bias[i];
    own[i].rank = rank_of(key);
    found_nan |= isnan(key);
  }
  choose(own, p.top_k, found + warp_of_thread() * p.top_k);
  const bool has_nan = __syncthreads_or(found_nan ? 1 : 0) != 0;
  const int n_found = static_cast<int>(blockDim.x) / kWarpSize * p.top_k;
  int32_t* experts = p.experts + token * p.experts_stride;
  float* weights = p.weights + token * p.weights_stride;
  if (has_nan) {
    // A row with NaN has no order: the first experts, with NaN weights.
    if (thread < p.top_k) {
      experts[thread] = thread;
      weights[thread] = NAN;
    }
    return;
  }
  if (thread < n_found) {
    const int place = place_of(found, n_found, thread);
    if (place < p.top_k) {
      experts[place] = found[thread].expert;
      probability[place] = found[thread].probability;
    }
  }
  __syncthreads();
  if (thread >= p.top_k) return;
  float sum = 0;
  for (int k = 0; k < p.top_k; ++k) sum += probability[k];
  const float divisor = p.mode == ops::RouteWeights::normalised ? sum + 1e-20F : 1.0F;
  weights[thread] = __fmul_rn(p.scaling, __fdiv_rn(probability[thread], divisor));
}

}  // namespace

void route_tokens(const Context& context, const ops::MoeExperts& args, NextKernel next) {
  const int64_t n_warps = div_up(args.scores[1], kWarpExperts);
  CHECK(n_warps <= kWarpsMax && args.experts[1] <= kTopMax);
  const Params p{.experts = args.experts.data,
                 .weights = args.weights.data,
                 .scores = args.scores.data,
                 .bias = args.bias.data,
                 .experts_stride = args.experts.stride[0],
                 .weights_stride = args.weights.stride[0],
                 .scores_stride = args.scores.stride[0],
                 .n_experts = static_cast<int>(args.scores[1]),
                 .top_k = static_cast<int>(args.experts[1]),
                 .scaling = args.scaling,
                 .mode = args.mode,
                 .next = next};
  launch(context.stream,
         {.grid = static_cast<unsigned>(args.scores[0]),
          .threads = static_cast<unsigned>(n_warps * kWarpSize)},
         route_kernel, p);
}

}  // namespace quire::cuda
