// Seals of pages: the hash of each block of a page on the device, that of the hashes on the host.
//
// XXH3 takes a long input by kilobytes of 16 stripes of 64 bytes. What a kilobyte adds to the eight
// sums does not depend on those before it; what follows it, a scramble of each sum, does. So the
// warps of a block make the sums of all kilobytes, and one warp goes through them in order: some
// thirty clocks for each of 36 of a Kimi layer in FP8.
// Source of the hash: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH3".
#include <cstring>

#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/integrity/page_sealer.h"
#include "format/seal_of_blocks.h"

namespace quire::cuda {

namespace {

constexpr int kTargetsMax = 128;                       // of one pass; more are hashed in turn
constexpr int kLanes = 8;                              // sums of 64 bits, and words of a stripe
constexpr int kStripes = (kSealSecretBytes - 64) / 8;  // of a kilobyte
constexpr int kStripeBytes = kLanes * static_cast<int>(sizeof(uint64_t));
constexpr int kStripeLanes = kStripeBytes / static_cast<int>(sizeof(uint4));  // that load one
constexpr int kLoads = kStripes * kStripeLanes / kWarpSize;  // of a lane, of a kilobyte
constexpr int kShortBytes = 240;  // what is no longer is hashed in another way

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kAhead = 5;           // kilobytes of a warp that are loaded together
constexpr int kKilobytesMax = 128;  // of a block of the layout

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
  uint64_t stripe[kStripes + kLanes - 1];  // word j of stripe s: [s + j]
  uint64_t scramble[kLanes];
  uint64_t last[kLanes];  // of the last stripe
  uint64_t low[kLanes];   // of the two halves of the result
  uint64_t high[kLanes];
};

struct Params {
  const std::byte* pool;
  int64_t page_bytes;
  int64_t block_stride;  // bytes between the beginnings of two blocks of the layout
  int32_t n_stripes;     // of a block
  BlockHash* hashes;     // [n_pages, n_blocks] in host memory
  Keys keys;
  int32_t pages[kTargetsMax];
};

// What a word adds to its own sum; its neighbour's gets the word itself.
__device__ uint64_t product(uint64_t word, uint64_t key) {
  const uint64_t keyed = word ^ key;
  return uint64_t{static_cast<uint32_t>(keyed)} * static_cast<uint32_t>(keyed >> 32);
}

// What a kilobyte adds to the sums, by a warp that has loaded it: lane i of the first four has sums
// 2 i and 2 i + 1. The block's last stripe has keys of its own.
__device__ void add_up(const Params& p, int32_t kilobyte, const uint4 (&loaded)[kLoads],
                       uint64_t* sums) {
  const int word = 2 * (lane_of_thread() % kStripeLanes);
  uint64_t of_lane[2] = {};
#pragma unroll
  for (int t = 0; t < kLoads; ++t) {
    const int stripe = (t * kWarpSize + lane_of_thread()) / kStripeLanes;
    const bool is_last = kilobyte * kStripes + stripe == p.n_stripes - 1;
    const uint64_t* keys = is_last ? p.keys.last + word : p.keys.stripe + stripe + word;
    const uint64_t words[2] = {uint64_t{loaded[t].y} << 32 | loaded[t].x,
                               uint64_t{loaded[t].w} << 32 | loaded[t].z};
    if (kilobyte * kStripes + stripe >= p.n_stripes) continue;
    of_lane[0] += product(words[0], keys[0]) + words[1];
    of_lane[1] += product(words[1], keys[1]) + words[0];
  }
#pragma unroll
  for (uint64_t& sum : of_lane) {
    for (int step = kStripeLanes; step < kWarpSize; step *= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, step);
    }
  }
  if (lane_of_thread() >= kStripeLanes) return;
  sums[word] = of_lane[0];
  sums[word + 1] = of_lane[1];
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

// By a warp, of which each lane below 8 has a sum: the hash, of which thread 0's is right.
__device__ BlockHash chain(const Params& p, const uint64_t (*added)[kLanes], int32_t n_whole) {
  const int lane = lane_of_thread() % kLanes;
  constexpr uint64_t kStart[kLanes] = {kPrime32C, kPrime64A, kPrime64B, kPrime64C,
                                       kPrime64D, kPrime32B, kPrime64E, kPrime32A};
  uint64_t sum = kStart[0];
#pragma unroll
  for (int i = 1; i < kLanes; ++i) sum = lane == i ? kStart[i] : sum;
  const uint64_t key = p.keys.scramble[lane];
#pragma unroll 4
  for (int32_t k = 0; k < n_whole; ++k) sum = scramble(sum + added[k][lane], key);
  sum += added[n_whole][lane];
  uint64_t sums[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sums[i] = __shfl_sync(kFullWarp, sum, i);
  const uint64_t bytes = uint64_t{static_cast<uint32_t>(p.n_stripes)} * kStripeBytes;
  return {.low = merge(sums, p.keys.low, bytes * kPrime64A),
          .high = merge(sums, p.keys.high, ~(bytes * kPrime64B))};
}

// A block of the layout a block. Grid (blocks of the layout, pages), 256 threads, 8 KB of shared
// memory. Reads a page once, 2.28 MB of a Kimi page in FP8, and writes 16 bytes a block to the
// host: bound by memory where there are many, else by one load and the chain.
__global__ __launch_bounds__(kThreads) void hash_blocks_kernel(const __grid_constant__ Params p) {
  __shared__ uint64_t added[kKilobytesMax][kLanes];
  const int lane = lane_of_thread();
  const auto* const vectors = reinterpret_cast<const uint4*>(
      p.pool + int64_t{p.pages[blockIdx.y]} * p.page_bytes + blockIdx.x * p.block_stride);
  const int32_t n_vectors = p.n_stripes * kStripeLanes;
  // The last kilobyte is followed by no scramble, whole or not.
  const int32_t n_whole = (p.n_stripes - 1) / kStripes;
  for (int32_t first = warp_of_thread(); first <= n_whole; first += kAhead * kWarps) {
    uint4 loaded[kAhead][kLoads];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
#pragma unroll
      for (int t = 0; t < kLoads; ++t) {
        const int32_t at = ((first + a * kWarps) * kLoads + t) * kWarpSize + lane;
        loaded[a][t] = at < n_vectors ? vectors[at] : uint4{};
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int32_t kilobyte = first + a * kWarps;
      if (kilobyte <= n_whole) add_up(p, kilobyte, loaded[a], added[kilobyte]);
    }
  }
  __syncthreads();
  if (warp_of_thread() != 0) return;
  const BlockHash hash = chain(p, added, n_whole);
  if (lane == 0) p.hashes[int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = hash;
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

Params params_of(const PoolPages& pool) {
  const std::vector<KvBlock>& blocks = pool.layout->blocks;
  const int64_t bytes = blocks.front().bytes;
  const int64_t stride = blocks.size() > 1 ? blocks[1].offset - blocks[0].offset : bytes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    CHECK(blocks[i].bytes == bytes && blocks[i].offset == static_cast<int64_t>(i) * stride);
  }
  CHECK(bytes % kStripeBytes == 0 && stride % 16 == 0 && pool.layout->page_bytes % 16 == 0);
  CHECK(bytes > kShortBytes && bytes <= kKilobytesMax * kStripes * kStripeBytes);
  return {.pool = pool.data,
          .page_bytes = pool.layout->page_bytes,
          .block_stride = stride,
          .n_stripes = static_cast<int32_t>(bytes / kStripeBytes),
          .keys = make_keys()};
}

class CudaPageSealer final : public PageSealer {
 public:
  CudaPageSealer(int device, const PoolPages& pool, Buffer hashes)
      : device_(device),
        n_pages_(pool.n_pages),
        n_blocks_(pool.layout->blocks.size()),
        hashes_(std::move(hashes)),
        params_(params_of(pool)) {
    CUDA_MUST(cudaSetDevice(device));
    int least = 0;
    int greatest = 0;
    CUDA_MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // The step goes first.
    CUDA_MUST(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least));
    params_.hashes = reinterpret_cast<BlockHash*>(hashes_.data());
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
    for (size_t i = 0; i < targets.size(); ++i) {
      const int32_t page = targets[i].page.value;
      CHECK(page >= 0 && page < n_pages_);
      params_.pages[i] = page;
    }
    const dim3 grid(static_cast<unsigned>(n_blocks_), static_cast<unsigned>(targets.size()));
    hash_blocks_kernel<<<grid, kThreads, 0, stream_>>>(params_);
    CUDA_MUST(cudaGetLastError());
    CUDA_MUST(cudaStreamSynchronize(stream_));
    for (size_t i = 0; i < targets.size(); ++i) {
      seals[i] = seal_of_blocks(targets[i].logical, {params_.hashes + i * n_blocks_, n_blocks_});
    }
  }

  const int device_;
  const int64_t n_pages_;
  const size_t n_blocks_;
  Buffer hashes_;  // BlockHash [kTargetsMax, n_blocks], pinned: the kernel writes it there
  Params params_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<PageSealer>> make_page_sealer(int device, PinnedMemory* pinned,
                                                     const PoolPages& pool) {
  const int64_t bytes =
      kTargetsMax * static_cast<int64_t>(pool.layout->blocks.size() * sizeof(BlockHash));
  std::byte* data = pinned->allocate(bytes);
  if (data == nullptr) return resource_exhausted("no memory for the seals of pages");
  return std::unique_ptr<PageSealer>(
      std::make_unique<CudaPageSealer>(device, pool, Buffer(pinned, data, bytes)));
}

}  // namespace quire::cuda
