#include "cuda/attention/combine.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;

struct Params {
  SplitResults splits;
  bf16* out;              // [n_tokens, n_heads, dim]
  int64_t out_stride[2];  // elements between tokens, between heads
};

// One token and head a block. Grid (heads, tokens), 128 threads, no shared memory. Moves 4 * dim
// bytes a split, and 2 * dim: bound by memory, in practice by the second-level cache.
__global__ __launch_bounds__(kThreads) void combine_kernel(const __grid_constant__ Params p) {
  const int64_t token = blockIdx.y;
  const int64_t head = blockIdx.x;
  const int64_t first = p.splits.at(token, head, 0);
  const auto n_splits = static_cast<int>(p.splits.shape.n_splits);
  float largest = -INFINITY;
  for (int s = 0; s < n_splits; ++s) largest = fmaxf(largest, p.splits.largest[first + s]);
  float total = 0;
  for (int s = 0; s < n_splits; ++s) {
    // An empty split has nothing to give, and -inf - -inf is NaN.
    if (p.splits.largest[first + s] == -INFINITY && p.splits.total[first + s] == 0) continue;
    total += p.splits.total[first + s] * expf(p.splits.largest[first + s] - largest);
  }
  for (int64_t c = threadIdx.x; c < p.splits.shape.dim; c += kThreads) {
    float sum = 0;
    for (int s = 0; s < n_splits; ++s) {
      if (p.splits.largest[first + s] == -INFINITY && p.splits.total[first + s] == 0) continue;
      sum += p.splits.sum[(first + s) * p.splits.shape.dim + c] *
             expf(p.splits.largest[first + s] - largest);
    }
    p.out[token * p.out_stride[0] + head * p.out_stride[1] + c] =
        __float2bfloat16_rn(__fdiv_rn(sum, total));
  }
}

}  // namespace

int64_t bytes_of_splits(const SplitShape& shape) {
  const int64_t n = shape.n_tokens * shape.n_heads * shape.n_splits;
  return Workspace::bytes_of<float>(n * shape.dim) + 2 * Workspace::bytes_of<float>(n);
}

SplitResults take_splits(Workspace& workspace, const SplitShape& shape) {
  const int64_t n = shape.n_tokens * shape.n_heads * shape.n_splits;
  SplitResults out{.shape = shape};
  out.sum = workspace.take<float>(n * shape.dim);
  out.total = workspace.take<float>(n);
  out.largest = workspace.take<float>(n);
  return out;
}

SplitResults take_splits(const Context& context, const SplitShape& shape) {
  context.workspace->begin(bytes_of_splits(shape));
  return take_splits(*context.workspace, shape);
}

void combine(const Context& context, const SplitResults& splits, const View<Bf16, 3>& out) {
  const Params p{
      .splits = splits, .out = device_type(out.data), .out_stride = {out.stride[0], out.stride[1]}};
  const dim3 grid(static_cast<unsigned>(out[1]), static_cast<unsigned>(out[0]));
  combine_kernel<<<grid, kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
