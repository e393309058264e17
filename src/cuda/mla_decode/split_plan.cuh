// How the pages of a step's tokens are shared among the blocks of one launch: a line on which every
// token lies with its chunks of pages, one after another, cut in equal shares.
//
// A token takes `overhead` places of the line before its first chunk: what a block spends on a new
// token, in chunks. The launch depends on shapes alone; where the cuts fall is computed on the
// device, from the positions, by every block for itself.
//
// Two ways to cut:
//   even:   a chunk is one page; chunks of a token that fall to one block are one part.
//   fixed:  a chunk is 16 pages (more where the page table is wide) and a part of its own: where a
//           token's pages are cut depends on absolute position alone, and so do its bits.
#pragma once

#include <cstdint>

#include "cuda/common/reduce.cuh"
#include "cuda/tune/decode_plan.h"
#include "format/kv_page.h"

namespace quire::cuda {

// Even shares have a place at least, and two (a page for each group of a block) where they are more
// than so many: each is one more part to add up.
inline constexpr int kShortShares = 64;

struct SplitPlan {
  const int32_t* position;  // [n_tokens]
  int n_tokens;
  int n_shares;
  int overhead;   // places of a token before its first chunk
  int table_max;  // pages a token can have: the width of the page table
  Cut cut;
  int chunk_log2;  // pages of a chunk

  __host__ __device__ int chunks_of(int n_pages) const { return ((n_pages - 1) >> chunk_log2) + 1; }
  __host__ __device__ int chunks_max() const { return chunks_of(table_max); }
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
  int64_t index;  // among DecodePlan::parts
  TokenParts of_token;
};

// Places [begin, end) of the line, and the token that has the first of them.
struct Share {
  int index;
  int begin, end;
  int token;
  int token_begin;  // first place of that token
  // Of all shares: the first n_longer have one place more than the others.
  int places;
  int n_longer;

  __device__ int begin_of(int share) const { return share * places + min(share, n_longer); }
  // The share that has a place: a guess, and where it was off by one.
  __device__ int share_of(int place) const {
    const bool is_longer = place < n_longer * (places + 1);
    int share =
        static_cast<int>(__fdividef(static_cast<float>(is_longer ? place : place - n_longer),
                                    static_cast<float>(is_longer ? places + 1 : places)));
    while (begin_of(share) > place) --share;
    while (begin_of(share + 1) <= place) ++share;
    return share;
  }
};

// Share `index`, by one warp.
__device__ inline Share find_share(const SplitPlan& plan, int index) {
  const int lane = lane_of_thread();
  const int run = (plan.n_tokens + kWarpSize - 1) / kWarpSize;
  const int first = min(lane * run, plan.n_tokens);
  const int last = min(first + run, plan.n_tokens);
  int sum = 0;
#pragma unroll 1
  for (int token = first; token < last; ++token) sum += plan.places_of(token);
  int upto = sum;  // of this lane and those before it
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int below = __shfl_up_sync(kFullWarp, upto, step);
    if (lane >= step) upto += below;
  }
  int before = upto - sum;
  const int length = __shfl_sync(kFullWarp, upto, kWarpSize - 1);
  // No share is empty: the parts of a token are then in neighbouring shares.
  const int shares_max =
      plan.cut == Cut::even ? max(length / 2, min(length, kShortShares)) : length;
  const int n_shares = max(min(plan.n_shares, shares_max), 1);
  Share share{.index = index, .token = plan.n_tokens, .places = length / n_shares};
  share.n_longer = length - share.places * n_shares;
  share.begin = share.begin_of(index);
  share.end = share.begin_of(index + 1);
  if (index >= n_shares) return share;
  const bool is_mine = before <= share.begin && share.begin < before + sum;  // true for one lane
  int token = first;
  if (is_mine) {
#pragma unroll 1
    for (int places; before + (places = plan.places_of(token)) <= share.begin; ++token) {
      before += places;
    }
  }
  const int owner = __ffs(static_cast<int>(__ballot_sync(kFullWarp, is_mine))) - 1;
  share.token = __shfl_sync(kFullWarp, token, owner);
  share.token_begin = __shfl_sync(kFullWarp, before, owner);
  return share;
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
#pragma unroll 1
    while (token_ < plan_.n_tokens) {
      const int pages = plan_.pages_of(token_);
      const int first = token_begin_ + plan_.overhead;  // place of chunk 0
      const int last = first + plan_.chunks_of(pages);
      const int begin = max(next_, first);
      int end = min(last, share_.end);
      if (begin < end) {
        if (plan_.cut == Cut::fixed) end = begin + 1;
        next_ = end;
        part->token = token_;
        part->page_begin = (begin - first) << plan_.chunk_log2;
        part->page_end = min((end - first) << plan_.chunk_log2, pages);
        part->of_token = parts_of(first, last, begin, end);
        part->index = plan_.cut == Cut::fixed
                          ? int64_t{part->of_token.first} + (begin - first)
                          : int64_t{2} * share_.index + (begin == first ? 1 : 0);
        return true;
      }
      if (last >= share_.end) return false;
      token_begin_ = last;
      ++token_;
    }
    return false;
  }

 private:
  // Of a token at [first, last), of which this share has [begin, end).
  __device__ TokenParts parts_of(int first, int last, int begin, int end) const {
    if (plan_.cut == Cut::fixed) return {token_ * plan_.chunks_max(), last - first};
    const int first_share = begin > first ? share_.share_of(first) : share_.index;
    const int last_share = end < last ? share_.share_of(last - 1) : share_.index;
    return {first_share, last_share - first_share + 1};
  }

  const SplitPlan& plan_;
  const Share& share_;
  int token_;
  int token_begin_;  // its first place
  int next_;         // place not yet walked
};

#endif

}  // namespace quire::cuda
