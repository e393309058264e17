// Seals of pages: XXH3-128 of a long input, cut where it can be.
//
// XXH3 takes its input in blocks of 16 stripes of 64 bytes. What a block adds to the eight sums
// does not depend on the blocks before it; what follows it, a scramble of each sum, does. So one
// kernel makes the sums of all blocks, at the speed of memory, and another one goes through them in
// order: some thirty clocks for each kilobyte of a page, all pages at once.
// Source of the hash: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH3".
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/integrity/page_sealer.h"

namespace quire::cuda {

namespace {

constexpr int kTargetsMax = 128;  // of one pass; more are hashed in turn
constexpr int kLanes = 8;         // sums of 64 bits, and words of a stripe
constexpr int kBlockStripes = (kSealSecretBytes - 64) / 8;
constexpr int kBlockWords = kBlockStripes * kLanes;
static_assert(kBlockWords == 4 * kWarpSize);

constexpr int kThreads = 256;
constexpr int kBlocksAWarp = 4;
constexpr int kBlocksATile = kThreads / kWarpSize * kBlocksAWarp;
constexpr int kAhead = 16;  // sums of blocks that are read before they are needed

constexpr uint64_t kPrime32A = 0x9e3779b1U;
constexpr uint64_t kPrime32B = 0x85ebca77U;
constexpr uint64_t kPrime32C = 0xc2b2ae3dU;
constexpr uint64_t kPrime64A = 0x9e3779b185ebca87U;
constexpr uint64_t kPrime64B = 0xc2b2ae3d27d4eb4fU;
constexpr uint64_t kPrime64C = 0x165667b19e3779f9U;
constexpr uint64_t kPrime64D = 0x85ebca77c2b2ae63U;
constexpr uint64_t kPrime64E = 0x27d4eb2f165667c5U;
constexpr uint64_t kPrimeMix = 0x165667919e3779f9U;

// The secret, read where each part of the hash reads it.
struct Keys {
  uint64_t stripe[kBlockStripes + kLanes - 1];  // word j of stripe s: [s + j]
  uint64_t scramble[kLanes];
  uint64_t last[kLanes];  // of the last stripe
  uint64_t low[kLanes];   // of the two halves of the result
  uint64_t high[kLanes];
};

// The words of a page in the order in which they are hashed: the head first, padding left out.
struct PageWords {
  const std::byte* pool;
  int64_t page_bytes;
  int32_t layer_words;   // of a block of the layout
  int32_t layer_stride;  // words between the beginnings of two
  int32_t n_words;       // of a page, with the head
  int32_t n_blocks;      // whole blocks of the hash that are followed by more
};

struct Params {
  PageWords pages;
  const SealTarget* targets;  // [n]
  uint64_t* sums;             // [n, n_blocks, kLanes]
  PageSeal* seals;            // [n]
  Keys keys;
};

__device__ uint64_t word_of(const PageWords& pages, const SealTarget& target, int32_t at) {
  if (at == 0) {
    return uint64_t{static_cast<uint32_t>(target.logical)} << 32 | uint32_t{kKvLayoutVersion};
  }
  const auto* words =
      reinterpret_cast<const uint64_t*>(pages.pool + int64_t{target.page.value} * pages.page_bytes);
  const int32_t i = at - 1;
  if (pages.layer_words == pages.layer_stride) return words[i];
  return words[i / pages.layer_words * pages.layer_stride + i % pages.layer_words];
}

// What a word adds to its own sum; its neighbour's gets the word itself.
__device__ uint64_t product(uint64_t word, uint64_t key) {
  const uint64_t keyed = word ^ key;
  return uint64_t{static_cast<uint32_t>(keyed)} * static_cast<uint32_t>(keyed >> 32);
}

// Four blocks of the hash a warp. Grid (blocks / 32, pages), 256 threads. Reads a page once and
// writes a sixteenth of it: 2.28 MB of a Kimi page in FP8, bound by memory where there are many.
__global__ __launch_bounds__(kThreads) void sum_blocks_kernel(const __grid_constant__ Params p) {
  __shared__ uint64_t stripe_keys[kBlockStripes + kLanes - 1];
  if (threadIdx.x < kBlockStripes + kLanes - 1)
    stripe_keys[threadIdx.x] = p.keys.stripe[threadIdx.x];
  __syncthreads();
  const SealTarget target = p.targets[blockIdx.y];
  const int lane = lane_of_thread();
  const int32_t first =
      static_cast<int32_t>(blockIdx.x) * kBlocksATile + warp_of_thread() * kBlocksAWarp;
  constexpr int kWords = kBlockWords / kWarpSize;  // of a lane, of a block
  uint64_t words[kBlocksAWarp][kWords];
#pragma unroll
  for (int b = 0; b < kBlocksAWarp; ++b) {
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      const int32_t at = (first + b) * kBlockWords + t * kWarpSize + lane;
      words[b][t] = first + b < p.pages.n_blocks ? word_of(p.pages, target, at) : 0;
    }
  }
#pragma unroll
  for (int b = 0; b < kBlocksAWarp; ++b) {
    if (first + b >= p.pages.n_blocks) return;
    uint64_t products = 0;
    uint64_t plain = 0;
#pragma unroll
    for (int t = 0; t < kWords; ++t) {
      const int stripe = t * (kWarpSize / kLanes) + lane / kLanes;
      products += product(words[b][t], stripe_keys[stripe + lane % kLanes]);
      plain += words[b][t];
    }
    uint64_t sum = products + __shfl_xor_sync(kFullWarp, plain, 1);
    for (int step = kLanes; step < kWarpSize; step *= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, step);
    }
    if (lane < kLanes) {
      p.sums[(int64_t{blockIdx.y} * p.pages.n_blocks + first + b) * kLanes + lane] = sum;
    }
  }
}

__device__ uint64_t scramble(uint64_t sum, uint64_t key) {
  return (sum ^ (sum >> 47) ^ key) * kPrime32A;
}

__device__ uint64_t merge(const uint64_t (&sums)[kLanes], const uint64_t (&keys)[kLanes],
                          uint64_t start) {
  uint64_t merged = start;
#pragma unroll
  for (int i = 0; i < kLanes; i += 2) {
    const uint64_t a = sums[i] ^ keys[i];
    const uint64_t b = sums[i + 1] ^ keys[i + 1];
    merged += (a * b) ^ __umul64hi(a, b);
  }
  merged ^= merged >> 37;
  merged *= kPrimeMix;
  return merged ^ (merged >> 32);
}

// A page a block of one warp, of which each lane below 8 has a sum. Grid (pages), 32 threads. Bound
// by the chain of scrambles: 2,226 of a Kimi page in FP8.
__global__ __launch_bounds__(kWarpSize) void chain_kernel(const __grid_constant__ Params p) {
  const int lane = lane_of_thread() % kLanes;
  const SealTarget target = p.targets[blockIdx.x];
  constexpr uint64_t kStart[kLanes] = {kPrime32C, kPrime64A, kPrime64B, kPrime64C,
                                       kPrime64D, kPrime32B, kPrime64E, kPrime32A};
  uint64_t sum = kStart[0];
#pragma unroll
  for (int i = 1; i < kLanes; ++i) sum = lane == i ? kStart[i] : sum;
  const uint64_t key = p.keys.scramble[lane];
  const int32_t n_blocks = p.pages.n_blocks;
  const uint64_t* added = p.sums + int64_t{blockIdx.x} * n_blocks * kLanes + lane;

  uint64_t next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = i < n_blocks ? added[int64_t{i} * kLanes] : 0;
  for (int32_t n = 0; n < n_blocks; n += kAhead) {
    uint64_t now[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      now[i] = next[i];
      const int32_t ahead = n + kAhead + i;
      next[i] = ahead < n_blocks ? added[int64_t{ahead} * kLanes] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (n + i < n_blocks) sum = scramble(sum + now[i], key);
    }
  }
  // What is left of the last block, and the last stripe once more under a key of its own.
  const auto add_stripe = [&](int32_t at, uint64_t stripe_key) {
    const uint64_t word = word_of(p.pages, target, at + lane);
    sum += product(word, stripe_key) + __shfl_xor_sync(kFullWarp, word, 1);
  };
  const int32_t begin = n_blocks * kBlockWords;
  const int32_t n_stripes = (p.pages.n_words - 1 - begin) / kLanes;
  for (int32_t s = 0; s < n_stripes; ++s) add_stripe(begin + s * kLanes, p.keys.stripe[s + lane]);
  add_stripe(p.pages.n_words - kLanes, p.keys.last[lane]);

  uint64_t sums[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sums[i] = __shfl_sync(kFullWarp, sum, i);
  const uint64_t bytes = uint64_t{static_cast<uint32_t>(p.pages.n_words)} * sizeof(uint64_t);
  if (threadIdx.x != 0) return;
  p.seals[blockIdx.x] = {.low = merge(sums, p.keys.low, bytes * kPrime64A),
                         .high = merge(sums, p.keys.high, ~(bytes * kPrime64B))};
}

Keys make_keys() {
  const SealSecret secret = seal_secret();
  Keys keys;
  const auto read = [&](uint64_t* out, size_t n, int from) {
    std::memcpy(out, secret.data() + from, n * sizeof(uint64_t));
  };
  constexpr int kEnd = kSealSecretBytes - 64;
  read(keys.stripe, std::size(keys.stripe), 0);
  read(keys.scramble, kLanes, kEnd);
  read(keys.last, kLanes, kEnd - 7);
  read(keys.low, kLanes, 11);
  read(keys.high, kLanes, kEnd - 11);
  return keys;
}

PageWords words_of(const PoolPages& pool) {
  const std::vector<KvBlock>& blocks = pool.layout->blocks;
  const int64_t bytes = blocks.front().bytes;
  const int64_t stride = blocks.size() > 1 ? blocks[1].offset - blocks[0].offset : bytes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    CHECK(blocks[i].bytes == bytes && blocks[i].offset == static_cast<int64_t>(i) * stride);
  }
  CHECK(bytes % 8 == 0 && stride % 8 == 0);
  const int64_t n_words = 1 + static_cast<int64_t>(blocks.size()) * bytes / 8;
  // Shorter inputs are hashed in another way.
  CHECK(n_words > kBlockWords && n_words <= std::numeric_limits<int32_t>::max() / 8);
  return {.pool = pool.data,
          .page_bytes = pool.layout->page_bytes,
          .layer_words = static_cast<int32_t>(bytes / 8),
          .layer_stride = static_cast<int32_t>(stride / 8),
          .n_words = static_cast<int32_t>(n_words),
          .n_blocks = static_cast<int32_t>((n_words * 8 - 1) / (kBlockWords * 8))};
}

class CudaPageSealer final : public PageSealer {
 public:
  struct Buffers {
    Buffer targets, sums, seals;      // of the device
    Buffer host_targets, host_seals;  // pinned
  };

  CudaPageSealer(int device, const PoolPages& pool, Buffers buffers)
      : device_(device), n_pages_(pool.n_pages), buffers_(std::move(buffers)) {
    CUDA_MUST(cudaSetDevice(device));
    int least = 0;
    int greatest = 0;
    CUDA_MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // The step goes first.
    CUDA_MUST(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least));
    params_ = {.pages = words_of(pool),
               .targets = reinterpret_cast<const SealTarget*>(buffers_.targets.data()),
               .sums = reinterpret_cast<uint64_t*>(buffers_.sums.data()),
               .seals = reinterpret_cast<PageSeal*>(buffers_.seals.data()),
               .keys = make_keys()};
  }
  ~CudaPageSealer() override {
    CUDA_MUST(cudaSetDevice(device_));
    CUDA_MUST(cudaStreamDestroy(stream_));
  }
  CudaPageSealer(const CudaPageSealer&) = delete;
  CudaPageSealer& operator=(const CudaPageSealer&) = delete;

  void seal(std::span<const SealTarget> targets, std::span<PageSeal> seals) override {
    CHECK(targets.size() == seals.size());
    CUDA_MUST(cudaSetDevice(device_));
    for (size_t at = 0; at < targets.size(); at += kTargetsMax) {
      const size_t n = std::min(targets.size() - at, size_t{kTargetsMax});
      seal_some(targets.subspan(at, n), seals.subspan(at, n));
    }
  }

 private:
  void seal_some(std::span<const SealTarget> targets, std::span<PageSeal> seals) {
    for (const SealTarget& target : targets) {
      CHECK(target.page.value >= 0 && target.page.value < n_pages_);
    }
    const auto n = static_cast<unsigned>(targets.size());
    const size_t target_bytes = targets.size_bytes();
    std::memcpy(buffers_.host_targets.data(), targets.data(), target_bytes);
    CUDA_MUST(cudaMemcpyAsync(buffers_.targets.data(), buffers_.host_targets.data(), target_bytes,
                              cudaMemcpyHostToDevice, stream_));
    const int64_t n_tiles = div_up(params_.pages.n_blocks, kBlocksATile);
    const dim3 grid(static_cast<unsigned>(n_tiles), n);
    sum_blocks_kernel<<<grid, kThreads, 0, stream_>>>(params_);
    CUDA_MUST(cudaGetLastError());
    chain_kernel<<<n, kWarpSize, 0, stream_>>>(params_);
    CUDA_MUST(cudaGetLastError());
    CUDA_MUST(cudaMemcpyAsync(buffers_.host_seals.data(), buffers_.seals.data(), seals.size_bytes(),
                              cudaMemcpyDeviceToHost, stream_));
    CUDA_MUST(cudaStreamSynchronize(stream_));
    std::memcpy(seals.data(), buffers_.host_seals.data(), seals.size_bytes());
  }

  const int device_;
  const int64_t n_pages_;
  Buffers buffers_;
  Params params_;
  cudaStream_t stream_ = nullptr;
};

Result<Buffer> take(Memory* memory, int64_t bytes) {
  std::byte* data = memory->allocate(bytes);
  if (data == nullptr) return resource_exhausted("no memory for the seals of pages");
  return Buffer(memory, data, bytes);
}

}  // namespace

Result<std::unique_ptr<PageSealer>> make_page_sealer(int device, DeviceMemory* memory,
                                                     PinnedMemory* pinned, const PoolPages& pool) {
  constexpr int64_t kTargetBytes = kTargetsMax * int64_t{sizeof(SealTarget)};
  constexpr int64_t kSealBytes = kTargetsMax * int64_t{sizeof(PageSeal)};
  const int64_t sum_bytes =
      int64_t{words_of(pool).n_blocks} * kTargetsMax * kLanes * int64_t{sizeof(uint64_t)};
  CudaPageSealer::Buffers buffers;
  buffers.targets = TRY(take(memory, kTargetBytes));
  buffers.sums = TRY(take(memory, sum_bytes));
  buffers.seals = TRY(take(memory, kSealBytes));
  buffers.host_targets = TRY(take(pinned, kTargetBytes));
  buffers.host_seals = TRY(take(pinned, kSealBytes));
  return std::unique_ptr<PageSealer>(
      std::make_unique<CudaPageSealer>(device, pool, std::move(buffers)));
}

}  // namespace quire::cuda
