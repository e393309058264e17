#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;

struct Params {
  bf16* x;                   // [n_tokens, n_heads, 2 * n_pairs], in and out
  const int32_t* positions;  // [n_tokens]
  const float* cos;          // [max_positions, n_pairs]
  const float* sin;          // [max_positions, n_pairs]
  int64_t token_stride;      // elements
  int64_t head_stride;       // elements
  int64_t table_stride;      // elements between positions
  int64_t max_positions;
  int n_heads;
  int n_pairs;
};

// One token a block, one pair a thread and turn. Grid n_tokens, 256 threads, no shared memory.
// Moves 8 bytes a pair and head, and the table's 8 bytes a pair: bound by memory. Products and sums
// round on their own, as on the host.
__global__ __launch_bounds__(kThreads) void rope_kernel(const __grid_constant__ Params p) {
  const int64_t token = blockIdx.x;
  const int64_t position = min(max(int64_t{p.positions[token]}, int64_t{0}), p.max_positions - 1);
  const float* cos = p.cos + position * p.table_stride;
  const float* sin = p.sin + position * p.table_stride;
  for (int i = static_cast<int>(threadIdx.x); i < p.n_heads * p.n_pairs; i += kThreads) {
    const int pair = i % p.n_pairs;
    bf16* x = p.x + token * p.token_stride + (i / p.n_pairs) * p.head_stride + 2 * pair;
    const float a = __bfloat162float(x[0]);
    const float b = __bfloat162float(x[1]);
    x[0] = __float2bfloat16_rn(__fsub_rn(__fmul_rn(a, cos[pair]), __fmul_rn(b, sin[pair])));
    x[1] = __float2bfloat16_rn(__fadd_rn(__fmul_rn(b, cos[pair]), __fmul_rn(a, sin[pair])));
  }
}

}  // namespace

void rope(const Context& context, const ops::Rope& args) {
  CHECK(args.cos.stride[0] == args.sin.stride[0]);
  CHECK(args.x[1] * args.x[2] < int64_t{1} << 31);
  const Params p{.x = device_type(args.x.data),
                 .positions = args.positions.data,
                 .cos = args.cos.data,
                 .sin = args.sin.data,
                 .token_stride = args.x.stride[0],
                 .head_stride = args.x.stride[1],
                 .table_stride = args.cos.stride[0],
                 .max_positions = args.cos[0],
                 .n_heads = static_cast<int>(args.x[1]),
                 .n_pairs = static_cast<int>(args.x[2] / 2)};
  rope_kernel<<<static_cast<unsigned>(args.x[0]), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
