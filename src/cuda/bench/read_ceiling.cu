#include <algorithm>
#include <limits>

#include "base/text.h"
#include "cuda/bench/read_ceiling.h"
#include "cuda/common/cuda_must.h"

namespace quire {

namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerSm = 4;  // 2,048 threads a multiprocessor: all it holds
constexpr int kUnroll = 8;       // 128 bytes in flight a thread
constexpr int kPasses = 10;
constexpr int64_t kBytes = int64_t{4} << 30;

// Every thread reads 16 bytes at a time, neighbours next to each other, and keeps their sum. Grid
// 4 blocks a multiprocessor, 512 threads, no shared memory. Moves `n` x 16 bytes: bound by memory.
__global__ __launch_bounds__(kThreads) void read_kernel(const uint4* from, int64_t n, uint4* out) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  uint4 sum = make_uint4(0, 0, 0, 0);
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < n; i += kUnroll * stride) {
    uint4 x[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) x[k] = __ldcs(from + i + k * stride);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      sum.x ^= x[k].x;
      sum.y ^= x[k].y;
      sum.z ^= x[k].z;
      sum.w ^= x[k].w;
    }
  }
  // Never true for what the buffer holds, and the compiler cannot know: the reads must be made.
  if ((sum.x | sum.y | sum.z | sum.w) == 0x9e3779b9U) *out = sum;
}

}  // namespace

Result<double> measure_cuda_read_ceiling(int device) {
  if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess) {
    return unavailable(format("CUDA device %d: %s", device, cudaGetErrorString(code)));
  }
  int n_sms = 0;
  CUDA_MUST(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device));
  uint4* data = nullptr;
  if (cudaMalloc(&data, kBytes) != cudaSuccess) {
    (void)cudaGetLastError();
    return resource_exhausted("measuring how fast memory is read needs 4 GiB of it");
  }
  CUDA_MUST(cudaMemset(data, 0x5a, kBytes));
  cudaEvent_t begin;
  cudaEvent_t end;
  CUDA_MUST(cudaEventCreate(&begin));
  CUDA_MUST(cudaEventCreate(&end));
  float best_ms = std::numeric_limits<float>::max();
  for (int pass = 0; pass < kPasses; ++pass) {
    CUDA_MUST(cudaEventRecord(begin));
    read_kernel<<<kBlocksPerSm * n_sms, kThreads>>>(data, kBytes / 16, data);
    CUDA_MUST(cudaGetLastError());
    CUDA_MUST(cudaEventRecord(end));
    CUDA_MUST(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_MUST(cudaEventElapsedTime(&ms, begin, end));
    best_ms = std::min(best_ms, ms);
  }
  CUDA_MUST(cudaEventDestroy(begin));
  CUDA_MUST(cudaEventDestroy(end));
  CUDA_MUST(cudaFree(data));
  return static_cast<double>(kBytes) / (1e-3 * static_cast<double>(best_ms));
}

}  // namespace quire
