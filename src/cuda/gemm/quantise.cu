#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/gemm/quantise.h"
#include "cuda/ptx/grid_dependency.cuh"
#include "ops/weight_matrix.h"

namespace quire::cuda {

namespace {

constexpr int kWarps = 8;
constexpr int kLaneValues = 4;
static_assert(kLaneValues * kWarpSize == kFp8Block);

struct Params {
  bf16* values;      // [n_rows, n_in]
  float* scales;     // [n_rows, n_groups]
  const bf16* x;     // [n_rows, n_in]
  int64_t x_stride;  // elements between rows
  int64_t n_in;
  int64_t n_groups;
  int64_t n_all;     // groups of all rows
  bool is_in_fours;  // four values of a row can be moved at once
};

// One group of one row a warp. Grid (groups of all rows / 8), 256 threads. Moves 4 bytes a value
// and 4 a group: bound by memory.
__global__ __launch_bounds__(kWarps* kWarpSize) void quantise_kernel(
    const __grid_constant__ Params p) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp_of_thread();
  if (index >= p.n_all) return;
  const int64_t row = index / p.n_groups;
  const int64_t i = index % p.n_groups * kFp8Block + kLaneValues * lane_of_thread();
  const bf16* from = p.x + row * p.x_stride + i;
  bf16x2 stored[2] = {};
  if (p.is_in_fours && i < p.n_in) {
    *reinterpret_cast<uint2*>(stored) = *reinterpret_cast<const uint2*>(from);
  } else {
    const auto value = [&](int j) { return i + j < p.n_in ? from[j] : __ushort_as_bfloat16(0); };
    for (int j = 0; j < 2; ++j) stored[j] = {value(2 * j), value(2 * j + 1)};
  }
  float x[kLaneValues];
  float amax = 0;
  for (int j = 0; j < kLaneValues; ++j) {
    x[j] = __bfloat162float(j % 2 == 0 ? stored[j / 2].x : stored[j / 2].y);
    amax = fmaxf(amax, fabsf(x[j]));
  }
  const float scale = e4m3_scale(warp_max(amax));
  for (float& value : x) value = from_e4m3(to_e4m3(__fdiv_rn(value, scale)));
  bf16* to = p.values + row * p.n_in + i;
  if (p.is_in_fours && i < p.n_in) {
    *reinterpret_cast<uint2*>(to) = {bits_of(__floats2bfloat162_rn(x[0], x[1])),
                                     bits_of(__floats2bfloat162_rn(x[2], x[3]))};
  } else {
    for (int j = 0; j < kLaneValues; ++j) {
      if (i + j < p.n_in) to[j] = __float2bfloat16_rn(x[j]);
    }
  }
  if (lane_of_thread() == 0) p.scales[index] = scale;
}

}  // namespace

int64_t quantised_bytes(int64_t n_rows, int64_t n_in) {
  return Workspace::bytes_of<Bf16>(n_rows * n_in) +
         Workspace::bytes_of<float>(n_rows * div_up(n_in, kFp8Block));
}

Quantised quantise(const Context& context, const View<const Bf16, 2>& x) {
  const int64_t n_groups = div_up(x[1], kFp8Block);
  const Quantised out{.values = context.workspace->take<Bf16>(x[0] * x[1]),
                      .scales = context.workspace->take<float>(x[0] * n_groups),
                      .scale_stride = n_groups};
  const Params p{.values = device_type(out.values),
                 .scales = out.scales,
                 .x = device_type(x.data),
                 .x_stride = x.stride[0],
                 .n_in = x[1],
                 .n_groups = n_groups,
                 .n_all = x[0] * n_groups,
                 .is_in_fours = reinterpret_cast<uintptr_t>(x.data) % 8 == 0 &&
                                x.stride[0] % kLaneValues == 0 && x[1] % kLaneValues == 0};
  launch(context.stream,
         {.grid = dim3(static_cast<unsigned>(div_up(p.n_all, int64_t{kWarps}))),
          .threads = kWarps * kWarpSize},
         quantise_kernel, p);
  return out;
}

}  // namespace quire::cuda
