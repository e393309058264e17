// open_step: every block hashes a share of the words; the last one to finish judges and resolves.
#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kBlocks = 16;

// Words of ops::OpenStep::state. All but the counter are zero between calls.
enum State : int { kCounter, kHash, kNonces, kBlocksDone };

// There is no mirror to bring up to date: no word of it, and no code (tests/device/off_code.py).
struct NoMirror {
  __device__ void update(const StepInputs&) const {}
};

struct Mirror {
  PageLife* lives;  // [n_lives]
  int64_t n_lives;

  // Step 5 of the contract.
  __device__ void update(const StepInputs& in) const {
    const WordSlice changes = *in.changes.data;
    const int32_t n = (changes.end - changes.begin) / static_cast<int32_t>(kPageChangeWords);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n; i += kThreads) {
      const PageChange change = change_in(in.extra.data + changes.begin + i * kPageChangeWords);
      if (change.page >= 0 && change.page < n_lives) lives[change.page] = life_of(change);
    }
  }
};

template <class Kept>
struct Params {
  ops::StepOpening* out;
  uint64_t* state;
  StepInputs in;
  const int32_t* recent;
  int64_t n_recent;
  int64_t held_words;  // of the range of the inputs
  Kept mirror;         // last: an empty one moves nothing
};

__device__ void atomic_add(uint64_t* to, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

template <class T>
__device__ void fill_part(T* part, int64_t n, const T& value) {
  for (int64_t i = threadIdx.x; i < n; i += kThreads) part[i] = value;
}

// Step 4 of the contract.
__device__ void make_harmless(const StepInputs& in) {
  fill_part(in.samplers.data, in.shape.n_logits, SamplerRow{});
  fill_part(in.ids.data, in.shape.n_tokens, 0);
  fill_part(in.positions.data, in.shape.n_tokens, 0);
  fill_part(in.logit_rows.data, in.shape.n_logits, 0);
  fill_part(in.table.data, in.shape.n_rows * in.shape.table_width, 0);
  const int64_t last = in.shape.n_rows - 1;
  for (int64_t t = threadIdx.x; t < in.shape.n_tokens; t += kThreads) {
    in.rows.data[t] = static_cast<int32_t>(min(t, last));
  }
  for (int64_t r = threadIdx.x; r <= last + 1; r += kThreads) {
    in.row_begin.data[r] = static_cast<int32_t>(r <= last ? r : in.shape.n_tokens);
  }
}

__device__ void resolve(const StepInputs& in, const int32_t* recent, int64_t n_recent) {
  for (int64_t t = threadIdx.x; t < in.shape.n_tokens; t += kThreads) {
    const int32_t id = in.ids.data[t];
    if (id >= 0) continue;
    const int64_t place = -1 - int64_t{id};
    in.ids.data[t] = place < n_recent ? max(recent[place], 0) : 0;
  }
}

// Grid 16, 512 threads, 0.3 KB of shared memory. Reads the step's inputs once, 8 KB to 1 MB: bound
// by latency. Sums are of integers, so that the order of the blocks does not matter.
template <class Kept>
__global__ __launch_bounds__(kThreads) void open_step_kernel(
    const __grid_constant__ Params<Kept> p) {
  __shared__ uint64_t shared[kWarps];
  __shared__ bool is_last;
  let_next_kernel_begin();
  const SlotHeader header = *p.in.header.data;
  const bool is_sane = header.n_words >= kSlotHeaderWords && header.n_words <= p.held_words;
  const int64_t n_words = is_sane ? header.n_words : 0;
  const auto* words = reinterpret_cast<const uint32_t*>(p.in.header.data);
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  uint64_t hash = 0;
  for (int64_t i = kSlotHeaderWords + first; i < n_words; i += kBlocks * kThreads) {
    hash += slot_word_hash(static_cast<uint64_t>(i), words[i]);
  }
  uint64_t nonces = 0;
  for (int64_t r = first; r < p.in.shape.n_rows; r += kBlocks * kThreads) {
    nonces += p.in.nonces.data[r];
  }
  hash = block_sum<kWarps>(hash, shared);
  nonces = block_sum<kWarps>(nonces, shared);
  if (threadIdx.x == 0) {
    atomic_add(&p.state[kHash], hash);
    atomic_add(&p.state[kNonces], nonces);
    __threadfence();
    is_last = atomicAdd(reinterpret_cast<unsigned long long*>(&p.state[kBlocksDone]), 1ULL) ==
              kBlocks - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  const uint64_t step = __ldcg(&p.state[kCounter]) + 1;
  const bool is_good = is_sane && __ldcg(&p.state[kHash]) == header.hash &&
                       __ldcg(&p.state[kNonces]) == header.nonce_sum && step == header.step &&
                       header.n_rows <= p.in.shape.n_rows;
  __syncthreads();
  if (threadIdx.x == 0) {
    *p.out = {.step = step, .is_good = is_good ? 1U : 0U};
    p.state[kCounter] = step;
    p.state[kHash] = p.state[kNonces] = p.state[kBlocksDone] = 0;
  }
  if (is_good) {
    p.mirror.update(p.in);
    resolve(p.in, p.recent, p.n_recent);
  } else {
    make_harmless(p.in);
  }
}

template <class Kept>
void launch_open(const Context& context, const ops::OpenStep& args, const Kept& mirror) {
  const Params<Kept> p{.out = args.out.data,
                       .state = args.state.data,
                       .in = args.inputs,
                       .recent = args.recent.data,
                       .n_recent = args.recent.size(),
                       .held_words = args.inputs.fixed_words() + args.inputs.extra[0],
                       .mirror = mirror};
  open_step_kernel<Kept><<<kBlocks, kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace

void open_step(const Context& context, const ops::OpenStep& args) {
  if (args.lives[0] == 0) return launch_open(context, args, NoMirror{});
  launch_open(context, args, Mirror{.lives = args.lives.data, .n_lives = args.lives[0]});
}

}  // namespace quire::cuda
