// How the pages of a step's tokens are shared among the blocks of one launch: a line on which every
// token lies with its chunks of pages, one after another, cut in equal shares.
//
// A token takes `overhead` places of the line before its first chunk: what a block spends on a new
// token, in chunks. The launch depends on shapes alone; where the cuts fall is computed on the
// device, from the positions, by every block for itself.
//
// Two ways to cut:
//   even:   a chunk is one page; chunks of a token that fall to one block are one part.
//   fixed:  a chunk is kFixedChunkPages pages and a part of its own: where a token's pages are cut
//           depends on absolute position alone, and so do its bits.
#pragma once

#include <cstdint>

#include "cuda/common/reduce.cuh"
#include "format/kv_page.h"

namespace quire::cuda {

enum class Cut : uint8_t { even, fixed };

inline constexpr int kFixedChunkLog2 = 4;
inline constexpr int kFixedChunkPages = 1 << kFixedChunkLog2;
inline constexpr int kPlacesMin = 2;  // of an even share: a page for each group of a block

struct SplitPlan {
  const int32_t* position;  // [n_tokens]
  int n_tokens;
  int n_shares;
  int overhead;   // places of a token before its first chunk
  int table_max;  // pages a token can have: the width of the page table
  Cut cut;

  __host__ __device__ int chunk_log2() const { return cut == Cut::even ? 0 : kFixedChunkLog2; }
  __host__ __device__ int chunks_of(int n_pages) const {
    return ((n_pages - 1) >> chunk_log2()) + 1;
  }
  __host__ __device__ int chunks_max() const { return chunks_of(table_max); }
  // Parts of all tokens: `even` needs two a share, for a token that began before it and for one
  // that goes on behind it; all others are whole.
  __host__ __device__ int64_t parts_max() const {
    return cut == Cut::even ? int64_t{2} * n_shares : int64_t{n_tokens} * chunks_max();
  }
#ifdef __CUDACC__
  __device__ int pages_of(int token) const {
    return min(max(position[token], 0) / kPageTokens + 1, table_max);
  }
  __device__ int places_of(int token) const { return overhead + chunks_of(pages_of(token)); }
#endif
};

// Where the parts of a token are among all parts: what the combination needs to know.
struct TokenParts {
  int32_t first;    // share (even) or part (fixed) of the first
  int32_t n_parts;  // 1: the token is whole, and its output written
};

#ifdef __CUDACC__

// Some pages of one token, attended by one block.
struct Part {
  int token;
  int page_begin, page_end;
  int64_t index;  // among parts_max()
  TokenParts of_token;
};

// Places [begin, end) of the line, and the token that has the first of them.
struct Share {
  int begin, end;
  int token;
  int token_begin;  // first place of that token
  // Of all shares: the first n_longer have one place more than the others.
  int places;
  int n_longer;

  __device__ int begin_of(int share) const { return share * places + min(share, n_longer); }
  // The share that has a place.
  __device__ int share_of(int place) const {
    const int longer = n_longer * (places + 1);  // places of the first shares
    return place < longer ? place / (places + 1) : (place - longer) / places + n_longer;
  }
};

// The share of this block, by all its kThreads threads; `shared` is theirs.
template <int kThreads>
__device__ inline void find_share(const SplitPlan& plan, int index, Share* shared) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ int warp_sums[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int run = (plan.n_tokens + kThreads - 1) / kThreads;
  const int first = min(thread * run, plan.n_tokens);
  const int last = min(first + run, plan.n_tokens);
  int sum = 0;
  for (int token = first; token < last; ++token) sum += plan.places_of(token);
  int upto = sum;  // of this warp's threads, this one included
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int below = __shfl_up_sync(kFullWarp, upto, step);
    if (lane_of_thread() >= step) upto += below;
  }
  if (lane_of_thread() == kWarpSize - 1) warp_sums[warp_of_thread()] = upto;
  __syncthreads();
  int before = upto - sum;
  int length = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp < warp_of_thread()) before += warp_sums[warp];
    length += warp_sums[warp];
  }
  // No share is empty: the parts of a token are then in neighbouring shares.
  const int places_min = plan.cut == Cut::even ? kPlacesMin : 1;
  const int n_shares = max(min(plan.n_shares, length / places_min), 1);
  Share share{.token = plan.n_tokens, .places = length / n_shares, .n_longer = length % n_shares};
  share.begin = share.begin_of(index);
  share.end = share.begin_of(index + 1);
  if (index >= n_shares) {
    if (thread == 0) *shared = share;
  } else if (before <= share.begin && share.begin < before + sum) {  // true for one thread
    share.token = first;
    while (before + plan.places_of(share.token) <= share.begin) {
      before += plan.places_of(share.token++);
    }
    share.token_begin = before;
    *shared = share;
  }
  __syncthreads();
}

// The parts of a share, in order.
class PartWalk {
 public:
  __device__ PartWalk(const SplitPlan& plan, const Share& share)
      : plan_(plan),
        share_(share),
        token_(share.token),
        token_begin_(share.token_begin),
        next_(share.begin) {}

  __device__ bool next(Part* part) {
    while (token_ < plan_.n_tokens) {
      const int pages = plan_.pages_of(token_);
      const int first = token_begin_ + plan_.overhead;  // place of chunk 0
      const int last = token_begin_ + plan_.places_of(token_);
      const int begin = max(next_, first);
      int end = min(last, share_.end);
      if (begin < end) {
        if (plan_.cut == Cut::fixed) end = begin + 1;
        next_ = end;
        part->token = token_;
        part->page_begin = (begin - first) << plan_.chunk_log2();
        part->page_end = min((end - first) << plan_.chunk_log2(), pages);
        place(part, begin - first, first, last);
        return true;
      }
      if (last >= share_.end) return false;
      token_begin_ = last;
      ++token_;
    }
    return false;
  }

 private:
  __device__ void place(Part* part, int chunk, int first, int last) const {
    if (plan_.cut == Cut::fixed) {
      const int64_t of_token = int64_t{part->token} * plan_.chunks_max();
      part->index = of_token + chunk;
      part->of_token = {static_cast<int32_t>(of_token), last - first};
      return;
    }
    const int first_share = share_.share_of(first);
    const int last_share = share_.share_of(last - 1);
    const int share = share_.share_of(first + chunk);
    part->index = int64_t{2} * share + (chunk == 0 ? 1 : 0);
    part->of_token = {first_share, last_share - first_share + 1};
  }

  const SplitPlan& plan_;
  const Share& share_;
  int token_;
  int token_begin_;  // its first place
  int next_;         // place not yet walked
};

#endif

}  // namespace quire::cuda
