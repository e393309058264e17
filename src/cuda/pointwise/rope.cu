#include "cuda/common/launch.cuh"
#include "cuda/kernels.h"
#include "cuda/pointwise/rotate.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;

// One token a block, one pair a thread and turn. Grid n_tokens, 256 threads, no shared memory.
// Moves 8 bytes a pair and head, and the table's 8 bytes a pair: bound by memory.
__global__ __launch_bounds__(kThreads) void rope_kernel(const __grid_constant__ Rotation r) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const int64_t token = blockIdx.x;
  const int64_t row = table_row(r, token);
  for (int i = static_cast<int>(threadIdx.x); i < r.n_heads * r.n_pairs; i += kThreads) {
    const int pair = i % r.n_pairs;
    rotate_in_place(r.x + token * r.token_stride + (i / r.n_pairs) * r.head_stride + 2 * pair,
                    r.cos[row + pair], r.sin[row + pair]);
  }
}

}  // namespace

void rope(const Context& context, const ops::Rope& args) {
  launch(context.stream, {.grid = static_cast<unsigned>(args.x[0]), .threads = kThreads},
         rope_kernel, rotation_of(args.x, args.positions, args.cos, args.sin));
}

}  // namespace quire::cuda
