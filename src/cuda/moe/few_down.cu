#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/moe/few_experts.h"
#include "cuda/moe/few_lists.cuh"
#include "cuda/moe/few_stream.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = kFewWarps * kWarpSize;
static_assert(kFewTileRows == kGroupTiles * kTileRows);

struct Params {
  FewExperts experts;
  int routed_pitch;  // of inputs in shared memory
  int shared_pitch;
};

struct Shared {
  SharedRows routed;   // [n_pairs]
  SharedRows shared;   // [n_tokens]
  float* sums;         // [n_pairs, kFewSumPitch] outputs of each pair
  float* shared_sums;  // [kFewSharedParts, n_tokens, kFewSumPitch]
};

// `memory` begins behind the ring.
__device__ Shared shared_of(const Params& p, std::byte* memory) {
  const FewChoice& choice = p.experts.choice;
  const int n_pairs = choice.n_tokens * choice.top_k;
  Shared s{};
  s.routed = {reinterpret_cast<Bf16*>(memory), p.routed_pitch};
  s.shared = {s.routed.at + n_pairs * p.routed_pitch, p.shared_pitch};
  s.sums = reinterpret_cast<float*>(s.shared.at + choice.n_tokens * p.shared_pitch);
  s.shared_sums = s.sums + n_pairs * kFewSumPitch;
  return s;
}

__device__ inline float4 add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// The shared expert's inner values, four a thread: its sums are there in parts, of which as many as
// Kimi K2 has are under way at once.
__device__ void fill_shared(const FewExperts& e, const SharedRows& to) {
  constexpr int kAtOnce = 3;
  const int quads = to.vectors() * 2;
  const int tiles = e.shared.gate_up.n_groups * kGroupTiles;
  const int64_t part_sums = int64_t{e.choice.n_tokens} * tiles * kTileRows;
  for (int i = static_cast<int>(threadIdx.x); i < e.choice.n_tokens * quads; i += kThreads) {
    const int token = small_quotient(i, quads);
    const int inner = 4 * (i - token * quads);
    const bool is_there = inner < tiles * kInnerOfTile;
    const float* sums =
        e.shared_sums + (token * tiles + inner / kInnerOfTile) * kTileRows + inner % kInnerOfTile;
    float4 gate{};
    float4 up{};
    for (int first = 0; first < e.shared_parts; first += kAtOnce) {
      float4 part[kAtOnce][2] = {};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (!is_there || first + k >= e.shared_parts) continue;
        const float* at = sums + (first + k) * part_sums;
        part[k][0] = __ldcg(reinterpret_cast<const float4*>(at));
        part[k][1] = __ldcg(reinterpret_cast<const float4*>(at + kInnerOfTile));
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        gate = add(gate, part[k][0]);
        up = add(up, part[k][1]);
      }
    }
    auto* out = reinterpret_cast<bf16x2*>(to.at + token * to.pitch + inner);
    out[0] = __floats2bfloat162_rn(gated(gate.x, up.x), gated(gate.y, up.y));
    out[1] = __floats2bfloat162_rn(gated(gate.z, up.z), gated(gate.w, up.w));
  }
}

// A warp's runs: units of kTiles of the block's four tiles, those of the parts of the shared
// expert's inputs first, then those of the routed experts. Units go round the warps.
template <int kTiles>
class WarpWork {
 public:
  static constexpr int kOfExpert = kGroupTiles / kTiles;
  static constexpr int kSharedUnits = kFewSharedParts * kOfExpert;

  __device__ WarpWork(const FewExperts& e, const FewLists& lists)
      : e_(e), lists_(lists), group_(static_cast<int>(blockIdx.x)) {}

  __device__ int n_runs() const {
    const int n_units = kSharedUnits + lists_.n_active * kOfExpert;
    return (n_units - warp_of_thread() + kFewWarps - 1) / kFewWarps;
  }
  __device__ bool is_shared(int run) const { return unit(run) < kSharedUnits; }
  // The first of the unit's tiles.
  __device__ int tile_of(int run) const { return unit(run) % kOfExpert * kTiles; }
  // Of a routed unit.
  __device__ int active_of(int run) const { return (unit(run) - kSharedUnits) / kOfExpert; }
  // Of a unit of the shared expert.
  __device__ int part_of(int run) const { return unit(run) / kOfExpert; }
  __device__ int begin_of(int run) const {
    return e_.shared.down.n_steps * part_of(run) / kFewSharedParts;
  }
  __device__ int steps_of(int run) const {
    return e_.shared.down.n_steps * (part_of(run) + 1) / kFewSharedParts - begin_of(run);
  }
  __device__ StepRun run_of(int run) const {
    const int tile = group_ * kGroupTiles + tile_of(run);
    if (is_shared(run)) {
      const int begin = begin_of(run);
      return run_of_tiles(e_.shared.down, 0, tile, kTiles, begin, begin + steps_of(run));
    }
    return run_of_tiles(e_.routed.down, lists_.expert[active_of(run)], tile, kTiles, 0,
                        e_.routed.down.n_steps);
  }

 private:
  __device__ static int unit(int run) { return warp_of_thread() + run * kFewWarps; }

  const FewExperts& e_;
  const FewLists& lists_;
  int group_;
};

// Rows g and g + 8 of tiles from `tile` on; columns 2 t + i of n are rows row_of(2 t + i).
template <int kTiles, class RowOf>
__device__ void store_sums(const TileSum (&acc)[kTiles], int tile, int n, const RowOf& row_of) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int column = 2 * (lane_of_thread() % 4) + i;
    if (column >= n) continue;
    float* to = row_of(column) + tile * kTileRows + lane_of_thread() / 4;
#pragma unroll
    for (int at = 0; at < kTiles; ++at) {
      to[at * kTileRows] = acc[at][i];
      to[at * kTileRows + 8] = acc[at][i + 2];
    }
  }
}

template <int kTiles, class Ring>
__device__ void multiply_runs(const FewExperts& e, const FewLists& lists, const Shared& s,
                              const WarpWork<kTiles>& work, Ring& ring) {
  const int g = lane_of_thread() / 4;
  const int n_tokens = e.choice.n_tokens;
  const int n_runs = work.n_runs();
  const auto bring = [&] { ring.bring(n_runs, [&](int i) { return work.run_of(i); }); };
  const auto multiply = [&](const PackedMatrix& m, int n_steps, const Bf16* x, auto& acc) {
    if constexpr (kTiles == 1) {
      multiply_run_beside(m, ring, n_steps, x, acc, bring);
    } else {
      multiply_run(m, ring, n_steps, x, acc, bring);
    }
  };
  for (int run = 0; run < n_runs; ++run) {
    const int tile = work.tile_of(run);
    TileSum acc[kTiles] = {};
    if (work.is_shared(run)) {
      const PackedMatrix& m = e.shared.down;
      const Bf16* x = s.shared.of_lane(min(g, n_tokens - 1)) + work.begin_of(run) * m.step_inputs;
      multiply(m, work.steps_of(run), x, acc);
      float* part = s.shared_sums + work.part_of(run) * n_tokens * kFewSumPitch;
      store_sums(acc, tile, n_tokens, [&](int column) { return part + column * kFewSumPitch; });
    } else {
      const PackedMatrix& m = e.routed.down;
      const int active = work.active_of(run);
      const uint8_t(&pair)[kFewTokensMax] = lists.pair[active];
      const int n_rows = lists.n_rows[active];
      multiply(m, m.n_steps, s.routed.of_lane(pair[min(g, n_rows - 1)]), acc);
      store_sums(acc, tile, n_rows,
                 [&](int column) { return s.sums + pair[column] * kFewSumPitch; });
    }
  }
}

// In order of slot, the shared expert last.
__device__ void write_outputs(const FewExperts& e, const FewLists& lists, const Shared& s) {
  const bool has_shared = e.shared.down.data != nullptr;
  const int n_tokens = e.choice.n_tokens;
  for (int i = static_cast<int>(threadIdx.x); i < n_tokens * kFewTileRows; i += kThreads) {
    const int token = i / kFewTileRows;
    const int row = i % kFewTileRows;
    const int64_t output = int64_t{blockIdx.x} * kFewTileRows + row;
    if (output >= e.width) continue;
    float sum = 0;
    for (int k = 0; k < e.choice.top_k; ++k) {
      const int pair = token * e.choice.top_k + k;
      sum = fmaf(lists.weight[pair], s.sums[pair * kFewSumPitch + row], sum);
    }
    if (has_shared) {
      float shared = 0;
#pragma unroll
      for (int part = 0; part < kFewSharedParts; ++part) {
        shared += s.shared_sums[(part * n_tokens + token) * kFewSumPitch + row];
      }
      sum += shared;
    }
    reinterpret_cast<bf16*>(e.out)[token * e.out_stride + output] = __float2bfloat16_rn(sum);
  }
}

// 64 outputs of every token a block: its warps share the tiles of all chosen experts. Weights are
// read while the kernel before still makes the inputs: what was chosen is there when it lets this
// one begin. Grid width / 64, 512 threads, shared memory for Kimi K2: 80 KiB for one token, else
// 144 and 8 for each. Moves the weights once: bound by memory, for one token by latency.
template <bool kIsBeside, int kBlocksOfSm = kIsBeside ? 2 : 1>
__global__ __launch_bounds__(kThreads,
                             kBlocksOfSm) void few_down_kernel(const __grid_constant__ Params p) {
  constexpr FewCut kCut = kIsBeside ? kFewDownBeside : kFewDownAlone;
  using Ring = StepRing<kCut, /*kIsUniform=*/true>;
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ FewLists lists;
  const FewExperts& e = p.experts;
  const Shared s = shared_of(p, memory + Ring::kAllBytes);
  const WarpWork<kCut.tiles> work(e, lists);
  Ring ring(memory);
  const auto run_of = [&](int i) { return work.run_of(i); };
  const int first = work.is_shared(0) ? min(work.steps_of(0), kCut.steps) : 0;
  for (int i = 0; i < first; ++i) ring.bring(1, run_of);
  list_few(FewChosen::load(e.choice), lists);
  __syncthreads();
  for (int i = first; i < kCut.steps; ++i) ring.bring(work.n_runs(), run_of);
  wait_for_earlier_kernels();
  // Not earlier: the norm's block would take the place of one of this kernel's, and a block of the
  // product behind it would find none (docs/kernels/step.md).
  let_next_kernel_begin();
  const ExpertInput gated{.rows = e.gated,
                          .stride = e.gated_stride,
                          .scales = nullptr,
                          .scale_stride = 0,
                          .n_in = static_cast<int>(e.gated_stride)};
  for (int row = warp_of_thread(); row < e.choice.n_tokens * e.choice.top_k; row += kFewWarps) {
    s.routed.copy(gated, row, lane_of_thread(), kWarpSize);
  }
  commit_copies();
  if (e.shared.down.data != nullptr) fill_shared(e, s.shared);
  wait_for_copies<0>();
  __syncthreads();
  multiply_runs(e, lists, s, work, ring);
  __syncthreads();
  write_outputs(e, lists, s);
}

void launch_kernel(const Context& context, const FewExpertsPlan& plan, const FewExperts& experts,
                   void (*kernel)(Params)) {
  prefer_shared_memory(kernel);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(div_up(experts.width, kFewTileRows))),
                          .threads = kThreads,
                          .shared_bytes = plan.down_shared_bytes};
  const int64_t shared_inner =
      int64_t{experts.shared.down.n_steps} * experts.shared.down.step_inputs;
  launch(context.stream, shape, kernel,
         Params{.experts = experts,
                .routed_pitch = static_cast<int>(few_row_pitch(experts.gated_stride)),
                .shared_pitch = static_cast<int>(few_row_pitch(shared_inner))});
}

}  // namespace

void launch_few_down(const Context& context, const FewExpertsPlan& plan,
                     const FewExperts& experts) {
  launch_kernel(context, plan, experts,
                plan.is_beside ? few_down_kernel<true> : few_down_kernel<false>);
}

}  // namespace quire::cuda
