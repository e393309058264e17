#include "base/check.h"
#include "cuda/bench/memory_check.h"
#include "cuda/common/cuda_must.h"

namespace quire {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 132 * 8;

// A word's value: SplitMix64 of its place, as base/rng.h has it.
__device__ uint64_t word_at(uint64_t seed, int64_t index) {
  uint64_t x = seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// One word a thread and round; 1,056 blocks of 256 threads. Moves 8 n bytes.
__global__ __launch_bounds__(kThreads) void write_kernel(uint64_t* data, int64_t n, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    data[i] = word_at(seed, i);
  }
}

// As write_kernel; `wrong` is added to once a thread. Integers: the sum does not depend on order.
__global__ __launch_bounds__(kThreads) void check_kernel(const uint64_t* data, int64_t n,
                                                         uint64_t seed, unsigned long long* wrong) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  unsigned long long mine = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    if (data[i] != word_at(seed, i)) ++mine;
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

int64_t words(int64_t bytes) {
  CHECK(bytes > 0 && bytes % 8 == 0);
  return bytes / 8;
}

}  // namespace

void write_cuda_words(std::byte* data, int64_t bytes, uint64_t seed) {
  write_kernel<<<kBlocks, kThreads>>>(reinterpret_cast<uint64_t*>(data), words(bytes), seed);
  CUDA_MUST(cudaGetLastError());
  CUDA_MUST(cudaDeviceSynchronize());
}

int64_t count_wrong_cuda_words(const std::byte* data, int64_t bytes, uint64_t seed) {
  unsigned long long* wrong = nullptr;
  CUDA_MUST(cudaMalloc(&wrong, sizeof(*wrong)));
  CUDA_MUST(cudaMemset(wrong, 0, sizeof(*wrong)));
  check_kernel<<<kBlocks, kThreads>>>(reinterpret_cast<const uint64_t*>(data), words(bytes), seed,
                                      wrong);
  CUDA_MUST(cudaGetLastError());
  unsigned long long found = 0;
  CUDA_MUST(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost));
  CUDA_MUST(cudaFree(wrong));
  return static_cast<int64_t>(found);
}

}  // namespace quire
