// Which (token, slot) pairs each expert works on, made by a block for itself from what was chosen.
//
// A few hundred pairs: to count them takes a block no longer than to read lists that another kernel
// made, and that kernel is saved.
#pragma once

#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_decode.h"

namespace quire::cuda {

// In shared memory. Pair p is slot p % top_k of token p / top_k.
struct BlockLists {
  uint16_t* begin;   // [n_experts + 1] where each expert's pairs begin
  uint16_t* active;  // [n_experts] experts that have a pair, ascending; n_active of them
  uint16_t* pairs;   // [n_pairs] by expert, then by pair
  int n_active;

  __device__ int first_pair(int of_active) const { return begin[active[of_active]]; }
  __device__ int rows_of(int of_active) const {
    return begin[active[of_active] + 1] - first_pair(of_active);
  }
};

inline constexpr int64_t kListTokensMax = 64;

// The tokens of an expert, a bit each.
struct TokenMask {
  uint32_t words[kListTokensMax / 32];

  __device__ void add(int token) { atomicOr(&words[token / 32], 1U << token % 32); }
  __device__ uint64_t all() const { return words[0] | static_cast<uint64_t>(words[1]) << 32; }
};

// Shared memory beside a BlockLists, in bytes: for ever, and until it is made.
__host__ __device__ inline int64_t block_lists_bytes(int64_t n_experts, int64_t n_pairs) {
  return (2 * n_experts + 1 + n_pairs) * int64_t{sizeof(uint16_t)};
}
__host__ __device__ inline int64_t making_bytes(int64_t n_experts, int64_t n_pairs) {
  return n_experts * int64_t{sizeof(TokenMask)} + n_pairs * int64_t{sizeof(uint32_t)};
}

// Makes a block's lists; all threads call each of its parts. No token chose an expert twice, and
// there are at most kListTokensMax.
template <int kThreads>
class ListMaker {
 public:
  // `memory` and `scratch` have the bytes said above. Nothing that was chosen is read yet.
  __device__ ListMaker(const DecodeParams& p, std::byte* memory, std::byte* scratch)
      : n_experts_(static_cast<int>(p.routed.weights.n_experts)),
        n_pairs_(p.n_tokens * p.top_k),
        begin_(reinterpret_cast<uint16_t*>(memory)),
        masks_(reinterpret_cast<TokenMask*>(scratch)),
        chosen_(reinterpret_cast<uint32_t*>(masks_ + n_experts_)) {
    for (int e = thread(); e < n_experts_; e += kThreads) masks_[e] = {};
    __syncthreads();
  }

  // The lists are there behind a __syncthreads().
  __device__ void make(const DecodeParams& p, BlockLists& lists) {
    mark(p);
    __syncthreads();
    uint16_t* const active = begin_ + n_experts_ + 1;
    uint16_t* const pairs = active + n_experts_;
    sum_up(active, lists);
    if (thread() == 0) {
      begin_[n_experts_] = static_cast<uint16_t>(n_pairs_);
      lists.begin = begin_;
      lists.active = active;
      lists.pairs = pairs;
    }
    __syncthreads();
    for (int pair = thread(); pair < n_pairs_; pair += kThreads) {
      const uint32_t expert = chosen_[pair] >> 16;
      const uint64_t before = (uint64_t{1} << (chosen_[pair] & 0xffffU)) - 1;
      pairs[begin_[expert] + __popcll(masks_[expert].all() & before)] = static_cast<uint16_t>(pair);
    }
  }

 private:
  static constexpr int kWarps = kThreads / kWarpSize;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  // Each expert's tokens.
  __device__ void mark(const DecodeParams& p) {
    constexpr int kAtOnce = 4;  // under way
    for (int first = thread(); first < n_pairs_; first += kAtOnce * kThreads) {
      int expert[kAtOnce];
      int token[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pair = min(first + i * kThreads, n_pairs_ - 1);
        token[i] = pair / p.top_k;
        // Not by the read-only path: an earlier kernel may still run.
        expert[i] = __ldcg(p.experts + token[i] * p.experts_stride + pair % p.top_k);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pair = first + i * kThreads;
        if (pair >= n_pairs_) continue;
        masks_[expert[i]].add(token[i]);
        chosen_[pair] = static_cast<uint32_t>(expert[i]) << 16 | static_cast<uint32_t>(token[i]);
      }
    }
  }

  // Where experts begin, and which are active: some neighbouring experts a thread.
  __device__ void sum_up(uint16_t* active, BlockLists& lists) {
    __shared__ uint32_t of_warps[kWarps];
    const int n = (n_experts_ + kThreads - 1) / kThreads;
    const int first = min(thread() * n, n_experts_);
    const int end = min(first + n, n_experts_);
    uint32_t own = 0;
    for (int e = first; e < end; ++e) own += counts_of(e);
    uint32_t before = own;
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint32_t other = __shfl_up_sync(kFullWarp, before, step);
      if (lane_of_thread() >= step) before += other;
    }
    if (lane_of_thread() == kWarpSize - 1) of_warps[warp_of_thread()] = before;
    __syncthreads();
    before -= own;
    uint32_t all = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp == warp_of_thread()) before += all;
      all += of_warps[warp];
    }
    if (thread() == 0) lists.n_active = static_cast<int>(all >> 16);
    for (int e = first; e < end; ++e) {
      const uint32_t counts = counts_of(e);
      begin_[e] = static_cast<uint16_t>(before & 0xffffU);
      if (counts > 0) active[before >> 16] = static_cast<uint16_t>(e);
      before += counts;
    }
  }
  // Pairs, and in the upper half active experts.
  __device__ uint32_t counts_of(int expert) const {
    const auto n = static_cast<uint32_t>(__popcll(masks_[expert].all()));
    return n | (n > 0 ? 0x10000U : 0U);
  }

  int n_experts_;
  int n_pairs_;
  uint16_t* begin_;
  TokenMask* masks_;
  uint32_t* chosen_;  // [n_pairs] expert, and in the lower half token
};

}  // namespace quire::cuda
