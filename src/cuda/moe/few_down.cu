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
static_assert(kFewWarps == kGroupTiles * kFewSharedParts);

struct Params {
  FewExperts experts;
  int routed_pitch;  // of inputs in shared memory
  int shared_pitch;
  int n_steps;  // of each warp's ring
};

struct Shared {
  SharedRows routed;   // [n_pairs]
  SharedRows shared;   // [n_tokens]
  float* sums;         // [n_pairs, kFewSumPitch] outputs of each pair
  float* shared_sums;  // [kFewSharedParts, n_tokens, kFewSumPitch]
};

__device__ Shared shared_of(const Params& p, std::byte* memory) {
  const FewChoice& choice = p.experts.choice;
  const int n_pairs = choice.n_tokens * choice.top_k;
  Shared s{};
  s.routed = {reinterpret_cast<Bf16*>(memory + p.n_steps * kFewWarps * kFewStepBytes),
              p.routed_pitch};
  s.shared = {s.routed.at + n_pairs * p.routed_pitch, p.shared_pitch};
  s.sums = reinterpret_cast<float*>(s.shared.at + choice.n_tokens * p.shared_pitch);
  s.shared_sums = s.sums + n_pairs * kFewSumPitch;
  return s;
}

// The shared expert's inner values: its sums are there in parts.
__device__ void fill_shared(const FewExperts& e, const SharedRows& to) {
  const int width = to.vectors() * 8;
  const int tiles = e.shared.gate_up.n_groups * kGroupTiles;
  const int64_t part_sums = int64_t{e.choice.n_tokens} * tiles * kTileRows;
  for (int token = 0; token < e.choice.n_tokens; ++token) {
    const float* row = e.shared_sums + token * tiles * kTileRows;
    for (int inner = static_cast<int>(threadIdx.x); inner < width; inner += kThreads) {
      float gate = 0;
      float up = 0;
      if (inner < tiles * kInnerOfTile) {
        const float* at = row + inner / kInnerOfTile * kTileRows + inner % kInnerOfTile;
#pragma unroll 4
        for (int part = 0; part < e.shared_parts; ++part) {
          gate += __ldcg(at + part * part_sums);
          up += __ldcg(at + part * part_sums + kInnerOfTile);
        }
      }
      reinterpret_cast<bf16*>(to.at)[token * to.pitch + inner] =
          __float2bfloat16_rn(gated(gate, up));
    }
  }
}

// A warp's runs: a part of the inputs of one of the block's tiles of the shared expert, then whole
// tiles of routed ones.
class WarpWork {
 public:
  __device__ WarpWork(const FewExperts& e, const FewLists& lists)
      : e_(e), lists_(lists), group_(static_cast<int>(blockIdx.x)) {}

  __device__ int n_runs() const {
    return 1 + (lists_.n_active * kGroupTiles - warp_of_thread() + kFewWarps - 1) / kFewWarps;
  }
  __device__ int tile_of(int run) const {
    return (warp_of_thread() + max(run - 1, 0) * kFewWarps) % kGroupTiles;
  }
  __device__ int active_of(int run) const {
    return (warp_of_thread() + (run - 1) * kFewWarps) / kGroupTiles;
  }
  __device__ int shared_part() const { return warp_of_thread() / kGroupTiles; }
  __device__ int shared_begin() const {
    return e_.shared.down.n_steps * shared_part() / kFewSharedParts;
  }
  __device__ int shared_end() const {
    return e_.shared.down.n_steps * (shared_part() + 1) / kFewSharedParts;
  }
  __device__ StepRun run_of(int run) const {
    const int tile = group_ * kGroupTiles + tile_of(run);
    if (run == 0) return run_of_tile(e_.shared.down, 0, tile, shared_begin(), shared_end());
    return run_of_tile(e_.routed.down, lists_.expert[active_of(run)], tile, 0,
                       e_.routed.down.n_steps);
  }

 private:
  const FewExperts& e_;
  const FewLists& lists_;
  int group_;
};

// Row g and row g + 8 of a tile; columns 2 t + i of n are rows row_of(2 t + i).
template <class RowOf>
__device__ void store_sums(const TileSum& acc, int tile, int n, const RowOf& row_of) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int column = 2 * (lane_of_thread() % 4) + i;
    if (column >= n) continue;
    float* to = row_of(column) + tile * kTileRows + lane_of_thread() / 4;
    to[0] = acc[i];
    to[8] = acc[i + 2];
  }
}

template <class Ring>
__device__ void multiply_runs(const FewExperts& e, const FewLists& lists, const Shared& s,
                              const WarpWork& work, Ring& ring) {
  const int g = lane_of_thread() / 4;
  const int n_tokens = e.choice.n_tokens;
  const int n_runs = work.n_runs();
  for (int run = 0; run < n_runs; ++run) {
    const bool is_shared = run == 0;
    const PackedMatrix& m = is_shared ? e.shared.down : e.routed.down;
    const int begin = is_shared ? work.shared_begin() : 0;
    const int end = is_shared ? work.shared_end() : m.n_steps;
    const int active = is_shared ? 0 : work.active_of(run);
    const Bf16* x = is_shared
                        ? s.shared.of_lane(min(g, n_tokens - 1))
                        : s.routed.of_lane(lists.pair[active][min(g, lists.n_rows[active] - 1)]);
    x += begin * m.step_inputs;
    TileSum acc = {};
    for (int step = begin; step < end; ++step) {
      multiply_in_shared(m.format, ring.wait(), x, acc);
      ring.free();
      ring.bring(n_runs, [&](int i) { return work.run_of(i); });
      x += m.step_inputs;
    }
    if (is_shared) {
      float* part = s.shared_sums + work.shared_part() * n_tokens * kFewSumPitch;
      store_sums(acc, work.tile_of(run), n_tokens,
                 [&](int column) { return part + column * kFewSumPitch; });
    } else {
      store_sums(acc, work.tile_of(run), lists.n_rows[active],
                 [&](int column) { return s.sums + lists.pair[active][column] * kFewSumPitch; });
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
// one begin. Grid width / 64, 512 threads, 116 KiB of shared memory for one token of Kimi K2. Moves
// the weights once: bound by memory, for one token by latency.
template <int kSteps>
__global__ __launch_bounds__(kThreads, 2) void few_down_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ FewLists lists;
  const FewExperts& e = p.experts;
  const Shared s = shared_of(p, memory);
  const WarpWork work(e, lists);
  let_next_kernel_begin();
  StepRing<kSteps> ring(memory);
  const auto run_of = [&](int i) { return work.run_of(i); };
  const int first = min(work.shared_end() - work.shared_begin(), kSteps);
  for (int i = 0; i < first; ++i) ring.bring(1, run_of);
  list_few(FewChosen::load(e.choice), lists);
  __syncthreads();
  for (int i = first; i < kSteps; ++i) ring.bring(work.n_runs(), run_of);
  wait_for_earlier_kernels();
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

template <int kSteps>
void launch_with_steps(const Context& context, const LaunchShape& shape, const Params& params) {
  CUDA_MUST(cudaFuncSetAttribute(few_down_kernel<kSteps>,
                                 cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared));
  launch(context.stream, shape, few_down_kernel<kSteps>, params);
}

}  // namespace

void launch_few_down(const Context& context, const FewExpertsPlan& plan,
                     const FewExperts& experts) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(div_up(experts.width, kFewTileRows))),
                          .threads = kThreads,
                          .shared_bytes = plan.down_shared_bytes};
  const int64_t shared_inner =
      int64_t{experts.shared.down.n_steps} * experts.shared.down.step_inputs;
  const Params params{.experts = experts,
                      .routed_pitch = static_cast<int>(few_row_pitch(experts.gated_stride)),
                      .shared_pitch = static_cast<int>(few_row_pitch(shared_inner)),
                      .n_steps = plan.down_steps};
  if (plan.down_steps == kFewDownSteps) {
    return launch_with_steps<kFewDownSteps>(context, shape, params);
  }
  launch_with_steps<kFewDownStepsBeside>(context, shape, params);
}

}  // namespace quire::cuda
