#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/moe/expert_prefill.h"
#include "cuda/moe/prefill_stage.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/tune/experts_plan.h"

namespace quire::cuda {

namespace {

constexpr int kGroupThreads = 128;  // a warpgroup
constexpr int kConsumers = 2;       // warpgroups that multiply; one more brings stages
constexpr int kThreads = (kConsumers + 1) * kGroupThreads;
constexpr int kGroupWarps = kGroupThreads / kWarpSize;
// Together what the block is launched with, 504 for a thread of each warpgroup.
constexpr int kProducerRegisters = 56;
constexpr int kConsumerRegisters = 224;
constexpr int kSharedMax = 227 << 10;
constexpr int kStagesMax = 8;
static_assert(kBlockGroups * kGroupTiles * kTileRows == kPromptBlockRows);
static_assert(kBlockGroups == kConsumers * kWarpgroupGroups);

enum class Product { gate_up, down };
enum class Experts : bool { routed = false, shared = true };

// Outputs of a warpgroup on their way: [64 of inner, or twice 64 outputs][tokens][128 bytes].
template <Product kProduct, int kTokens>
inline constexpr int kOutBytes = (kProduct == Product::gate_up ? 1 : 2) * kTokens* kPanelRowBytes;

template <Product kProduct, WeightFormat kFormat, int kTokens>
inline constexpr int kStages =
    std::min<int>(kStagesMax, (kSharedMax - 2048 - kConsumers * kOutBytes<kProduct, kTokens>) /
                                  StageLayout<kFormat, kTokens>::kBytes);

// One set of barriers for each kind of expert: the stages of the two are not of one size.
struct Barriers {
  Barrier full[kStagesMax];
  Barrier empty[kStagesMax];
};
struct Shared {
  std::byte* ring;
  std::byte* out;
  Barriers* barriers;  // [2] of the shared expert, of the routed ones
};

// Counts through a ring of stages.
struct Cursor {
  int slot = 0;
  uint32_t phase = 0;
  __device__ void advance(int n_stages) {
    if (++slot == n_stages) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// The work on one kind of expert. A unit is some blocks of rows of a tile of tokens.
struct Phase {
  const std::byte* weights;
  int64_t expert_bytes;
  WeightFormat format;
  int n_steps;  // over the inputs
  ExpertInput input;
  int input_pieces;  // of 16 bytes, from a row of inputs to the next
  Bf16* out;
  int out_pieces;  // the same of outputs
  Experts experts;
  int n_blocks;
  int n_parts;  // units of a tile
  int n_units;
  int first_unit;  // of this thread block
};

__device__ Phase phase_of(const PrefillParams& p, Experts experts, int first_unit) {
  const bool is_shared = experts == Experts::shared;
  const ExpertSide& side = is_shared ? p.shared : p.routed;
  Phase phase{.weights = side.weights.data,
              .expert_bytes = side.weights.expert_bytes,
              .format = side.weights.format,
              .n_steps = side.weights.n_steps,
              .input = side.input,
              .input_pieces = static_cast<int>(side.input.stride / 8),
              .out = side.out,
              .out_pieces = static_cast<int>(side.out_stride / 8),
              .experts = experts,
              .n_blocks = 0,
              .n_parts = 1,
              .n_units = 0,
              .first_unit = first_unit};
  if (phase.weights == nullptr) return phase;
  phase.n_blocks = p.n_blocks > 0 ? p.n_blocks : side.weights.n_groups / kBlockGroups;
  phase.n_parts = (phase.n_blocks + p.unit_blocks - 1) / p.unit_blocks;
  const int n_tiles =
      is_shared ? (p.n_tokens + p.lists.tile_tokens - 1) / p.lists.tile_tokens : *p.lists.n_tiles;
  phase.n_units = n_tiles * phase.n_parts;
  return phase;
}

struct Unit {
  const std::byte* weights;  // of the expert
  const int32_t* pairs;      // of the tile; null of the shared expert
  int first;                 // token of the tile, of the shared expert
  int n_rows;
  int block;
  int block_end;
};

template <int kTokens>
__device__ Unit unit_at(const PrefillParams& p, const Phase& phase, int index) {
  const int tile = index / phase.n_parts;
  const int block = index % phase.n_parts * p.unit_blocks;
  const int block_end = min(block + p.unit_blocks, phase.n_blocks);
  if (phase.experts == Experts::shared) {
    const int first = tile * kTokens;
    return {phase.weights, nullptr, first, min(p.n_tokens - first, kTokens), block, block_end};
  }
  const TokenTile of = p.lists.tiles[tile];
  const int begin = p.lists.begin[of.expert] + of.first;
  return {phase.weights + of.expert * phase.expert_bytes,
          p.lists.pairs + begin,
          0,
          min(p.lists.begin[of.expert + 1] - begin, kTokens),
          block,
          block_end};
}

// The pair, or the token for the shared expert, of a tile's row; -1 for none.
__device__ int row_of(const Unit& unit, int i) {
  if (i >= unit.n_rows) return -1;
  return unit.pairs == nullptr ? unit.first + i : unit.pairs[i];
}

// What the threads of the producer do: each copies one 16-byte piece of every sixteenth token.
template <Product kProduct, WeightFormat kFormat, int kTokens>
class Producer {
 public:
  using Layout = StageLayout<kFormat, kTokens>;

  __device__ Producer(const PrefillParams& p, const Phase phase, std::byte* ring,
                      Barriers& barriers)
      : p_(p), phase_(phase), ring_(ring), barriers_(barriers) {}

  __device__ void run() {
    for (int index = phase_.first_unit; index < phase_.n_units;
         index += static_cast<int>(gridDim.x)) {
      const Unit unit = unit_at<kTokens>(p_, phase_, index);
      const int divisor =
          kProduct == Product::gate_up && phase_.experts == Experts::routed ? p_.top_k : 1;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = row_of(unit, token_ + i * kRowStep);
        row_[i] = row < 0 ? -1 : row / divisor * phase_.input_pieces;
      }
      if constexpr (kFormat == WeightFormat::fp8_block128) {
        const int row = thread_ < kTokens ? row_of(unit, thread_) : -1;
        scale_row_ = row < 0 ? -1 : row / divisor;
      }
      const int n_stages = phase_.n_steps / Layout::kSteps;
      for (int block = unit.block; block < unit.block_end; ++block) {
        for (int stage = 0; stage < n_stages; ++stage) bring(unit, p_.first_block + block, stage);
      }
    }
  }

 private:
  static constexpr int kPieces = kPanelRowBytes / 16;  // of a token in a panel
  static constexpr int kRowStep = kGroupThreads / kPieces;
  static constexpr int kRows = kTokens / kRowStep;

  __device__ void bring(const Unit& unit, int block, int stage) {
    barrier_wait(&barriers_.empty[to_.slot], to_.phase ^ 1);
    std::byte* const to = ring_ + to_.slot * Layout::kBytes;
    if (thread_ == 0) {
      Barrier* const full = &barriers_.full[to_.slot];
      barrier_expect_bytes(full, kBlockGroups * Layout::kGroupBytes);
      const int64_t step_bytes = kGroupTiles * kStepBytes<kFormat>;
      const int n_steps = phase_.n_steps;
#pragma unroll
      for (int group = 0; group < kBlockGroups; ++group) {
        const int64_t step =
            int64_t{block * kBlockGroups + group} * n_steps + stage * Layout::kSteps;
        bulk_copy(to + Layout::kWeights + group * Layout::kGroupBytes,
                  unit.weights + step * step_bytes, Layout::kGroupBytes, full);
      }
    }
    const ExpertInput& input = phase_.input;
    const auto* const from =
        reinterpret_cast<const uint4*>(input.rows) + stage * (Layout::kInputs / 8) + piece_;
    // Rows of a thread are 16 apart: their swizzle is the same.
    const uint32_t shared = shared_address(to) + static_cast<uint32_t>(swizzled(token_, piece_));
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint4* const row = from + max(row_[i], 0);
      const int bytes = row_[i] < 0 ? 0 : 16;
#pragma unroll
      for (int panel = 0; panel < Layout::kPanels; ++panel) {
        copy_async_16(shared + panel * Layout::kPanelBytes + i * kRowStep * kPanelRowBytes,
                      row + panel * kPieces, bytes);
      }
    }
    if constexpr (kFormat == WeightFormat::fp8_block128) {
      if (input.scales != nullptr && thread_ < kTokens) {
        const int64_t row = max(scale_row_, 0);
        copy_async_4(shared_address(to + Layout::kScales + thread_ * 4),
                     input.scales + row * input.scale_stride + stage, scale_row_ < 0 ? 0 : 4);
      }
    }
    arrive_when_copied(&barriers_.full[to_.slot]);
    to_.advance(kStages<kProduct, kFormat, kTokens>);
  }

  const PrefillParams& p_;
  const Phase phase_;
  std::byte* ring_;
  Barriers& barriers_;
  const int thread_ = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int token_ = thread_ / kPieces;
  const int piece_ = thread_ % kPieces;
  int row_[kRows];  // where it begins, in pieces; -1 for none
  int scale_row_ = -1;
  Cursor to_;
};

__device__ void sync_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, %1;" ::"r"(warpgroup + 1), "n"(kGroupThreads) : "memory");
}

__device__ uint32_t pair_of(float x, float y) { return bits_of(__floats2bfloat162_rn(x, y)); }

// Sums of a warpgroup, rounded, into [group][token][64 outputs], or as one [token][64 of inner].
template <Product kProduct, int kTokens>
__device__ void stage_out(const RowSums<kTokens>& sums, std::byte* out) {
  const int lane = lane_of_thread();
  const int warp = warp_of_thread() % kGroupWarps;
#pragma unroll
  for (int group = 0; group < kWarpgroupGroups; ++group) {
    const float(&sum)[kTokens / 2] = sums[group];
    if constexpr (kProduct == Product::gate_up) {
#pragma unroll
      for (int j = 0; j < kTokens / 8; j += 4) {
        uint32_t tiles[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (j + i);
          tiles[i] = pair_of(gated(sum[at], sum[at + 2]), gated(sum[at + 1], sum[at + 3]));
        }
        store_transposed(out + swizzled(8 * j + lane, group * 4 + warp), tiles);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kTokens / 8; j += 2) {
        uint32_t tiles[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = 4 * (j + i / 2) + i % 2 * 2;
          tiles[i] = pair_of(sum[at], sum[at + 1]);
        }
        const int token = 8 * (j + lane / 16) + lane % 8;
        store_transposed(
            out + group * kTokens * kPanelRowBytes + swizzled(token, 2 * warp + lane / 8 % 2),
            tiles);
      }
    }
  }
}

// 16 bytes of a token's outputs as the next product reads them: inner values in the order of
// input_order.h, outputs as they are.
template <Product kProduct>
__device__ uint4 staged(const std::byte* panel, int token, int piece) {
  if constexpr (kProduct == Product::down) {
    return *reinterpret_cast<const uint4*>(panel + swizzled(token, piece));
  }
  uint4 out;
  const auto word = [&](int t) {
    return *reinterpret_cast<const uint32_t*>(panel + swizzled(token, piece / 4 * 4 + t) +
                                              piece % 4 * 4);
  };
  out.x = word(0);
  out.y = word(1);
  out.z = word(2);
  out.w = word(3);
  return out;
}

// What the threads of a warpgroup that multiplies do.
template <Product kProduct, WeightFormat kFormat, int kTokens>
__device__ void consume(const PrefillParams& p, const Phase phase, const Shared s) {
  using Layout = StageLayout<kFormat, kTokens>;
  constexpr int kPieces = kPanelRowBytes / 16;
  constexpr int kRowStep = kGroupThreads / kPieces;
  const int warpgroup = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  std::byte* const out = s.out + warpgroup * kOutBytes<kProduct, kTokens>;
  Barriers& barriers = s.barriers[phase.experts == Experts::shared ? 0 : 1];
  const bool has_scales = phase.input.scales != nullptr;
  const int n_stages = phase.n_steps / Layout::kSteps;
  Cursor at;
  for (int index = phase.first_unit; index < phase.n_units; index += static_cast<int>(gridDim.x)) {
    const Unit unit = unit_at<kTokens>(p, phase, index);
    int rows[kTokens / kRowStep];  // where they begin, in pieces; -1 for none
#pragma unroll
    for (int i = 0; i < kTokens / kRowStep; ++i) {
      const int row = row_of(unit, thread / kPieces + i * kRowStep);
      rows[i] = row < 0 ? -1 : row * phase.out_pieces;
    }
    for (int block = unit.block; block < unit.block_end; ++block) {
      RowSums<kTokens> sums = {};
      for (int stage = 0; stage < n_stages; ++stage) {
        barrier_wait(&barriers.full[at.slot], at.phase);
        fence_async_proxy();
        const std::byte* const base = s.ring + at.slot * Layout::kBytes;
        StageProducts<kFormat, kTokens>::add(
            base,
            base + Layout::kWeights + warpgroup * kWarpgroupGroups * Layout::kGroupBytes +
                warp_of_thread() % kGroupWarps * kStepBytes<kFormat>,
            has_scales ? reinterpret_cast<const float*>(base + Layout::kScales) : nullptr, sums);
        if (lane_of_thread() == 0) barrier_arrive(&barriers.empty[at.slot]);
        at.advance(kStages<kProduct, kFormat, kTokens>);
      }
      sync_warpgroup(warpgroup);  // what was staged before has left
      stage_out<kProduct, kTokens>(sums, out);
      sync_warpgroup(warpgroup);
      constexpr int kPanels = kProduct == Product::gate_up ? 1 : 2;
      uint4* const to = reinterpret_cast<uint4*>(phase.out) + thread % kPieces +
                        (block * kConsumers + warpgroup) * kPanels * kPieces;
#pragma unroll
      for (int i = 0; i < kTokens / kRowStep; ++i) {
        if (rows[i] < 0) continue;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          to[rows[i] + panel * kPieces] =
              staged<kProduct>(out + panel * kTokens * kPanelRowBytes,
                               thread / kPieces + i * kRowStep, thread % kPieces);
        }
      }
    }
  }
}

enum class Role { produce, consume };

template <Product kProduct, int kTokens, WeightFormat kFormat>
__device__ __forceinline__ void run_format(Role role, const PrefillParams& p, const Phase& phase,
                                           const Shared& s) {
  if (role == Role::produce) {
    Producer<kProduct, kFormat, kTokens>(p, phase, s.ring,
                                         s.barriers[phase.experts == Experts::shared ? 0 : 1])
        .run();
  } else {
    consume<kProduct, kFormat, kTokens>(p, phase, s);
  }
}

template <Product kProduct, int kTokens>
__device__ __forceinline__ void run_phase(Role role, const PrefillParams& p, const Phase& phase,
                                          const Shared& s) {
  switch (phase.format) {
    case WeightFormat::bf16:
      return run_format<kProduct, kTokens, WeightFormat::bf16>(role, p, phase, s);
    case WeightFormat::fp8_block128:
      return run_format<kProduct, kTokens, WeightFormat::fp8_block128>(role, p, phase, s);
    case WeightFormat::int4_group:
      return run_format<kProduct, kTokens, WeightFormat::int4_group>(role, p, phase, s);
  }
}

template <Product kProduct, int kTokens>
__device__ __forceinline__ void run_role(Role role, const PrefillParams& p, const Shared& s) {
  const auto n = static_cast<int>(gridDim.x);
  const auto block = static_cast<int>(blockIdx.x);
  const Phase shared = phase_of(p, Experts::shared, block);
  if (shared.n_units > 0) run_phase<kProduct, kTokens>(role, p, shared, s);
  __syncthreads();  // the ring is free
  // Blocks that had less of the shared expert begin with the first units of the routed ones.
  run_phase<kProduct, kTokens>(
      role, p, phase_of(p, Experts::routed, (block + n - shared.n_units % n) % n), s);
}

// Units of (tile of tokens, 256 rows of weights) go round the blocks. A warpgroup brings stages of
// inputs (cp.async, row by row) and of weights (bulk copies); each of two others owns 128 rows.
// Grid: a block a multiprocessor, 384 threads, up to 225 KB of shared memory. A unit moves its
// weights once and its inputs once, mostly out of the second-level cache: bound by tensor cores.
template <Product kProduct, int kTokens>
__global__ __launch_bounds__(kThreads,
                             1) void prefill_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ std::byte memory[];
  __shared__ Barriers barriers[2];
  const auto base = reinterpret_cast<uintptr_t>(memory);
  std::byte* const aligned = memory + (1024 - base % 1024) % 1024;
  const Shared s{.ring = aligned + kConsumers * kOutBytes<kProduct, kTokens>,
                 .out = aligned,
                 .barriers = barriers};
  if (threadIdx.x == 0) {
    for (Barriers& of : barriers) {
      for (int stage = 0; stage < kStagesMax; ++stage) {
        barrier_init(&of.full[stage], kGroupThreads + 1);
        barrier_init(&of.empty[stage], kConsumers * kGroupWarps);
      }
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  if (threadIdx.x >= kConsumers * kGroupThreads) {
    give_registers<kProducerRegisters>();
    run_role<kProduct, kTokens>(Role::produce, p, s);
  } else {
    take_registers<kConsumerRegisters>();
    run_role<kProduct, kTokens>(Role::consume, p, s);
  }
}

template <Product kProduct, int kTokens>
void launch_tokens(const Context& context, const PrefillParams& params) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(context.n_sms)),
                          .threads = kThreads,
                          .shared_bytes = kSharedMax - 1024};
  launch(context.stream, shape, prefill_kernel<kProduct, kTokens>, params);
}

template <Product kProduct>
void launch_product(const Context& context, const PrefillParams& params) {
  switch (params.lists.tile_tokens) {
    case 32:
      return launch_tokens<kProduct, 32>(context, params);
    case 64:
      return launch_tokens<kProduct, 64>(context, params);
    case 96:
      return launch_tokens<kProduct, 96>(context, params);
  }
  CHECK(false);
}

}  // namespace

void launch_gate_up_tiles(const Context& context, const PrefillParams& params) {
  launch_product<Product::gate_up>(context, params);
}

void launch_down_tiles(const Context& context, const PrefillParams& params) {
  launch_product<Product::down>(context, params);
}

}  // namespace quire::cuda
