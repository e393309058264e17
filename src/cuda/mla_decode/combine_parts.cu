#include "cuda/common/launch.cuh"
#include "cuda/mla_decode/combine.cuh"
#include "cuda/mla_decode/combine_parts.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kVectors = 64;  // of a block; the same for every batch, as the order of sums must be

// One token, 8 heads, 64 of the 1,024 vectors of its sums. Grid (16, head groups, tokens), 128
// threads, 9 KiB of shared memory. Reads 16 KiB and 64 bytes a part; bound by latency: a few loads
// of the second-level cache one after another.
template <KvFormat kFormat>
__global__ __launch_bounds__(kGroupThreads) void combine_kernel(
    const __grid_constant__ CombineParams p) {
  __shared__ CombineScratch scratch;
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int token = static_cast<int>(blockIdx.z);
  const TokenParts parts = p.partial.parts[token];
  if (parts.n_parts == 1) return;
  const int begin = static_cast<int>(blockIdx.x) * kVectors;
  combine_slice<kFormat>(p.partial, p.out,
                         {.token = token, .parts = parts, .begin = begin, .end = begin + kVectors},
                         static_cast<int>(blockIdx.y), 0, &scratch);
}

}  // namespace

void combine_parts(cudaStream_t stream, const CombineParams& p) {
  const LaunchShape shape{
      .grid = dim3(kSumVectors / kVectors, static_cast<unsigned>(p.partial.n_head_groups),
                   static_cast<unsigned>(p.n_tokens)),
      .threads = kGroupThreads};
  switch (p.format) {
    case KvFormat::bf16:
      launch(stream, shape, combine_kernel<KvFormat::bf16>, p);
      break;
    case KvFormat::fp8_e4m3_584:
      launch(stream, shape, combine_kernel<KvFormat::fp8_e4m3_584>, p);
      break;
  }
}

}  // namespace quire::cuda
