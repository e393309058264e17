// How down begins on experts whose inner values are there while gate and up still run.
//
// Gate and up's blocks have units of work; in the last round some have none, and down's first
// blocks take their place. Gate and up count what they have written, expert by expert, and down
// waits for the expert that it needs, not for the kernel. All blocks of gate and up are there
// before down begins, so that waiting for them ends.
#pragma once

#include <cuda/atomic>

#include "cuda/common/reduce.cuh"
#include "cuda/moe/expert_decode.h"

namespace quire::cuda {

inline constexpr int kSharedExpert = -1;

// Where an expert's inner values are counted.
__device__ inline int32_t* arrived_of(const DecodeParams& p, int active) {
  return p.arrived + (active == kSharedExpert ? p.routed.weights.n_experts : active);
}

// By one thread, behind a barrier of those whose writes it stands for.
__device__ inline void arrive(const DecodeParams& p, int active, int n) {
  ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(*arrived_of(p, active));
  arrived.fetch_add(n, ::cuda::memory_order_release);
}

// By a warp: until `all` have arrived.
__device__ inline void wait_for_arrivals(const DecodeParams& p, int active, int all) {
  if (lane_of_thread() == 0) {
    ::cuda::atomic_ref<int32_t, ::cuda::thread_scope_device> arrived(*arrived_of(p, active));
    while (arrived.load(::cuda::memory_order_relaxed) < all) {
    }
    arrived.load(::cuda::memory_order_acquire);
  }
  __syncwarp();
}

// How down's work is shared out: its first blocks, which take the place of those of gate and up
// that have nothing to do in the last round, have so much more.
struct DownShares {
  int64_t even;      // times n_warps
  int64_t of_early;  // more of each early warp, times n_warps
  int64_t n_early;
  int64_t n_warps;

  // Of `total` items, `lead` of which a warp does while a unit of gate and up is done.
  __device__ static DownShares of(int64_t total, int64_t gate_up_units, int lead, int warps) {
    const int64_t n_blocks = gridDim.x;
    DownShares out{total, 0, 0, n_blocks * warps};
    const int64_t rest = gate_up_units % n_blocks;
    if (lead == 0 || gate_up_units < n_blocks || rest == 0) return out;
    out.n_early = (n_blocks - rest) * warps;
    out.even = max(total - out.n_early * lead, int64_t{0});
    out.of_early = lead * out.n_warps;
    return out;
  }
  // Of n items, those before warp i.
  __device__ int before(int64_t n, int64_t i) const {
    const int64_t all = even * n_warps + of_early * n_early;
    if (all == 0) return 0;
    return static_cast<int>(n * (even * i + of_early * min(i, n_early)) / all);
  }
};

}  // namespace quire::cuda
