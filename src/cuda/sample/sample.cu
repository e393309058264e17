// sample, device side: one row a block, passes over the vocabulary.
//
// Sums over the vocabulary are in float64 and in an order that depends on the vocabulary alone, so
// that a row's token does not depend on its batch. The weights of a draw are rounded from float64,
// which makes them those of a host whose expf is correctly rounded.
#include "cuda/common/cuda_must.h"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "ops/sample.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarpSize;
constexpr uint32_t kInPrompt = 1U << 31;

struct Params {
  ops::SampledRow* out;    // [n_rows]
  float* logits;           // [n_rows, vocab]; steps 2 and 3 are done in place
  int64_t logits_stride;   // elements between rows
  const SamplerRow* rows;  // [n_rows]
  const int32_t* words;    // what the rows' slices are of
  int32_t* recent;         // [n_recent, recent_stride] tokens of the last steps
  int64_t recent_stride;
  int64_t n_recent;
  const uint64_t* step;  // [1]
  // [n_rows, vocab], one after the other: counts (bit 31: in the prompt; the rest: how often
  // generated), then weights exp((l - largest) / temperature).
  uint32_t* scratch;
  int32_t vocab;
};

struct Shared {
  Best best[kWarps];
  double sums[kWarps];
  int counts[kWarps];
  int found;  // a token
};

__device__ bool is_empty(const WordSlice& slice) { return slice.begin >= slice.end; }

__device__ int32_t token_of(const Params& p, int32_t word) {
  return word >= 0 ? word : p.recent[-1 - int64_t{word}];
}

// How often each token came, by all threads.
__device__ void count_tokens(const Params& p, const SamplerRow& row, uint32_t* counts) {
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < p.vocab; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = row.prompt.begin + thread; i < row.prompt.end; i += kThreads) {
    const int32_t token = token_of(p, p.words[i]);
    if (0 <= token && token < p.vocab) atomicOr(&counts[token], kInPrompt);
  }
  for (int i = row.generated.begin + thread; i < row.generated.end; i += kThreads) {
    const int32_t token = token_of(p, p.words[i]);
    if (0 <= token && token < p.vocab) atomicAdd(&counts[token], 1U);
  }
  __syncthreads();
}

// Steps 2 and 3, in place. Whether there was anything to change.
__device__ bool adjust(const Params& p, const SamplerRow& row, float* logits, uint32_t* scratch) {
  const bool is_counted = !is_empty(row.prompt) || !is_empty(row.generated);
  const bool is_masked = !is_empty(row.mask);
  const auto thread = static_cast<int>(threadIdx.x);
  // A token is one thread's, so that its biases are added in the order of the list.
  for (int i = row.bias.begin; i < row.bias.end; i += 2) {
    const int32_t token = p.words[i];
    if (0 <= token && token < p.vocab && token % kThreads == thread) {
      logits[token] += __int_as_float(p.words[i + 1]);
    }
  }
  if (!is_counted && !is_masked) {
    if (!is_empty(row.bias)) __syncthreads();
    return !is_empty(row.bias);
  }
  if (is_counted) count_tokens(p, row, scratch);
  for (int i = thread; i < p.vocab; i += kThreads) {
    float logit = logits[i];
    if (is_masked &&
        (static_cast<uint32_t>(p.words[row.mask.begin + i / 32]) >> (i % 32) & 1U) == 0) {
      logit = -INFINITY;
    }
    const uint32_t count = is_counted ? __ldcg(&scratch[i]) : 0;
    if (count != 0) {
      logit = logit > 0 ? __fdiv_rn(logit, row.repetition_penalty)
                        : __fmul_rn(logit, row.repetition_penalty);
    }
    const auto generated = static_cast<float>(count & ~kInPrompt);
    if (generated > 0) {
      logit = __fsub_rn(
          logit, __fadd_rn(row.presence_penalty, __fmul_rn(row.frequency_penalty, generated)));
    }
    logits[i] = logit;
  }
  __syncthreads();
  return true;
}

// The first of the largest (index `vocab` when all are -inf), and whether all are finite.
struct Scan {
  Best best;
  bool is_finite;
};

__device__ Scan scan(const float* logits, int vocab, Shared* shared) {
  Best best{-INFINITY, vocab};
  bool is_finite = true;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kThreads) {
    const float x = logits[i];
    is_finite = is_finite && isfinite(x);
    if (x > best.value) best = {x, i};
  }
  const bool all_finite = __syncthreads_and(is_finite ? 1 : 0) != 0;
  return {block_best<kWarps>(best, shared->best), all_finite};
}

// The first in descending order of those after `last`; index `vocab` when there is none.
__device__ Best next_best(const float* logits, int vocab, Best last, Shared* shared) {
  Best best{-INFINITY, vocab};
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kThreads) {
    const Best x{logits[i], i};
    const bool is_after = x.value < last.value || (x.value == last.value && i > last.index);
    if (is_after && x.value > -INFINITY) best = better(best, x);
  }
  return block_best<kWarps>(best, shared->best);
}

// Which weights are kept: w > value, or w == value and the token below tie_end; and w >= floor.
struct Cut {
  float value = -1;
  int tie_end = 0;
  float floor = 0;

  __device__ bool keeps(float w, int token) const {
    return w >= floor && (w > value || (w == value && token < tie_end));
  }
};

// A warp's share of the vocabulary where order matters: neighbouring tokens.
struct Segment {
  int begin, end;
};

__device__ Segment segment_of_warp(int vocab) {
  const int length = (vocab + kWarps - 1) / kWarps;
  const int begin = min(warp_of_thread() * length, vocab);
  return {begin, min(begin + length, vocab)};
}

// The token after the `count`-th weight equal to `value`, in order of token.
__device__ int end_of_ties(const float* weights, int vocab, float value, int count,
                           Shared* shared) {
  const Segment segment = segment_of_warp(vocab);
  int ties = 0;
  for (int i = segment.begin + lane_of_thread(); i < segment.end; i += kWarpSize) {
    ties += weights[i] == value ? 1 : 0;
  }
  ties = warp_sum(ties);
  __syncthreads();
  if (lane_of_thread() == 0) shared->counts[warp_of_thread()] = ties;
  if (threadIdx.x == 0) shared->found = vocab;
  __syncthreads();
  int before = 0;
  for (int warp = 0; warp < warp_of_thread(); ++warp) before += shared->counts[warp];
  if (before < count && before + ties >= count) {
    for (int first = segment.begin; first < segment.end; first += kWarpSize) {
      const int i = first + lane_of_thread();
      const bool is_tie = i < segment.end && weights[i] == value;
      const uint32_t lanes = __ballot_sync(kFullWarp, is_tie);
      const int rank = before + __popc(lanes & ((2U << lane_of_thread()) - 1));
      if (is_tie && rank == count) shared->found = i + 1;
      before += __popc(lanes);
    }
  }
  __syncthreads();
  return shared->found;
}

// What lies above a weight.
struct Above {
  int count;
  double sum;
};

__device__ Above above(const float* weights, int vocab, uint32_t bits, Shared* shared) {
  const float value = __uint_as_float(bits);
  int count = 0;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < vocab; i += kThreads) {
    const float w = weights[i];
    if (w > value) {
      ++count;
      sum += w;
    }
  }
  return {block_sum<kWarps>(count, shared->counts), block_sum<kWarps>(sum, shared->sums)};
}

// The end of the kept prefix of the descending order, by bisection over the bits of a weight
// (non-negative floats order as their bits do): 30 passes over weights that the second-level cache
// holds.
__device__ Cut truncate(const SamplerRow& row, const float* weights, int vocab, double total,
                        Shared* shared) {
  Cut cut{.floor = row.min_p};
  if (row.top_k <= 0 && row.top_p >= 1) return cut;
  const double p_end = static_cast<double>(row.top_p) * total;
  const auto keeps_first = [&](const Above& a) {
    return a.count == 0 ||
           ((row.top_k <= 0 || a.count < row.top_k) && (row.top_p >= 1 || a.sum < p_end));
  };
  uint32_t rejected = 0;                  // the least bits might be kept as well: see below
  uint32_t kept = __float_as_uint(1.0F);  // the largest weight is exp(0)
  if (keeps_first(above(weights, vocab, 0, shared))) {
    kept = 0;
  } else {
    while (kept - rejected > 1) {
      const uint32_t middle = rejected + (kept - rejected) / 2;
      (keeps_first(above(weights, vocab, middle, shared)) ? kept : rejected) = middle;
    }
  }
  cut.value = __uint_as_float(kept);
  const Above a = above(weights, vocab, kept, shared);
  double ties = vocab;  // of weights equal to cut.value, those still kept
  if (row.top_k > 0) ties = min(ties, static_cast<double>(row.top_k - a.count));
  if (row.top_p < 1 && cut.value > 0) ties = min(ties, ceil((p_end - a.sum) / cut.value));
  if (a.count == 0) ties = max(ties, 1.0);
  cut.tie_end = end_of_ties(weights, vocab, cut.value, static_cast<int>(ties), shared);
  return cut;
}

// The first kept token at which the cumulated weight passes uniform * (sum of the kept).
__device__ int draw(const float* weights, int vocab, const Cut& cut, double uniform,
                    Shared* shared) {
  const Segment segment = segment_of_warp(vocab);
  double sum = 0;
  for (int i = segment.begin + lane_of_thread(); i < segment.end; i += kWarpSize) {
    if (cut.keeps(weights[i], i)) sum += weights[i];
  }
  sum = warp_sum(sum);
  __syncthreads();
  if (lane_of_thread() == 0) shared->sums[warp_of_thread()] = sum;
  __syncthreads();
  double total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += shared->sums[warp];
  const double target = uniform * total;
  // The warp whose segment passes the target, or the last one that has any weight.
  int chosen = 0;
  double before = 0;
  double cumulated = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    if (shared->sums[warp] <= 0) continue;
    chosen = warp;
    before = cumulated;
    cumulated += shared->sums[warp];
    if (cumulated > target) break;
  }
  if (warp_of_thread() == chosen) {
    int token = -1;
    for (int first = segment.begin; first < segment.end; first += kWarpSize) {
      const int i = first + lane_of_thread();
      const bool is_kept = i < segment.end && weights[i] > 0 && cut.keeps(weights[i], i);
      double prefix = is_kept ? static_cast<double>(weights[i]) : 0.0;
      for (int step = 1; step < kWarpSize; step *= 2) {
        const double lower = __shfl_up_sync(kFullWarp, prefix, step);
        if (lane_of_thread() >= step) prefix += lower;
      }
      const uint32_t kept = __ballot_sync(kFullWarp, is_kept);
      const uint32_t passed = __ballot_sync(kFullWarp, is_kept && before + prefix > target);
      if (kept != 0) token = first + 31 - __clz(static_cast<int>(kept));
      if (passed != 0) {
        token = first + __ffs(static_cast<int>(passed)) - 1;
        break;
      }
      before += __shfl_sync(kFullWarp, prefix, kWarpSize - 1);
    }
    if (lane_of_thread() == 0) shared->found = token;
  }
  __syncthreads();
  return shared->found;
}

// Step 4 of a row that is not greedy.
__device__ int sample_token(const Params& p, const SamplerRow& row, const float* logits,
                            float largest, float* weights, Shared* shared) {
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.vocab; i += kThreads) {
    const float x = __fdiv_rn(logits[i] - largest, row.temperature);
    const auto w = static_cast<float>(exp(static_cast<double>(x)));
    weights[i] = w;
    total += w;
  }
  total = block_sum<kWarps>(total, shared->sums);
  const Cut cut = truncate(row, weights, p.vocab, total, shared);
  return draw(weights, p.vocab, cut, row.uniform, shared);
}

// The answer of the block's row, by all threads.
__device__ ops::SampledRow sample_row(const Params& p, const SamplerRow& row, float* logits,
                                      Shared* shared) {
  ops::SampledRow out{};
  const Scan raw = scan(logits, p.vocab, shared);
  if (!raw.is_finite) {
    out.verdict = static_cast<int32_t>(ops::SampleVerdict::bad_logits);
    return out;
  }
  uint32_t* scratch = p.scratch + int64_t{blockIdx.x} * p.vocab;
  const bool is_changed = adjust(p, row, logits, scratch);
  const Best best = is_changed ? scan(logits, p.vocab, shared).best : raw.best;
  if (best.index == p.vocab) {
    out.verdict = static_cast<int32_t>(ops::SampleVerdict::dead_end);
    return out;
  }
  out.verdict = static_cast<int32_t>(ops::SampleVerdict::ok);
  out.token = row.temperature == 0 ? best.index
                                   : sample_token(p, row, logits, best.value,
                                                  reinterpret_cast<float*>(scratch), shared);
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.vocab; i += kThreads) {
    sum += expf(logits[i] - best.value);
  }
  sum = block_sum<kWarps>(sum, shared->sums);
  const float log_total = best.value + static_cast<float>(log(sum));
  for (Best last{INFINITY, -1}; out.n_top < min(row.top_logprobs, ops::kTopLogprobsMax);
       ++out.n_top) {
    last = next_best(logits, p.vocab, last, shared);
    if (last.index == p.vocab) break;
    out.top_tokens[out.n_top] = last.index;
    out.top_logprobs[out.n_top] = last.value - log_total;
  }
  out.logprob = logits[out.token] - log_total;
  return out;
}

// Work of a block: one row. Grid n_rows, 1,024 threads, 0.8 KB of shared memory. Reads the row
// twice when greedy; a draw writes its weights once and reads them twice more, 33 times when
// it truncates; each of top_logprobs is one more pass. All but the first come from the second-level
// cache: bound by what one multiprocessor reads from it. H200, 2026-11-29, 64 rows of 163,840,
// copies included: greedy 93 us, a draw 267 us, with top-p 608 us.
__global__ __launch_bounds__(kThreads) void sample_kernel(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  const SamplerRow row = p.rows[blockIdx.x];
  const ops::SampledRow out =
      sample_row(p, row, p.logits + int64_t{blockIdx.x} * p.logits_stride, &shared);
  if (threadIdx.x != 0) return;
  p.out[blockIdx.x] = out;
  p.recent[static_cast<int64_t>(*p.step % p.n_recent) * p.recent_stride + blockIdx.x] = out.token;
}

}  // namespace

void sample(const Context& context, const ops::Sample& args) {
  const int64_t vocab = args.logits[1];
  CHECK(vocab < int64_t{1} << 31);
  const int64_t n_scratch = args.logits[0] * vocab;
  context.workspace->begin(Workspace::bytes_of<uint32_t>(n_scratch));
  const Params p{.out = args.out.data,
                 .logits = args.logits.data,
                 .logits_stride = args.logits.stride[0],
                 .rows = args.rows.data,
                 .words = args.words.data,
                 .recent = args.recent.data,
                 .recent_stride = args.recent.stride[0],
                 .n_recent = args.recent[0],
                 .step = args.step.data,
                 .scratch = context.workspace->take<uint32_t>(n_scratch),
                 .vocab = static_cast<int32_t>(vocab)};
  sample_kernel<<<static_cast<unsigned>(args.logits[0]), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
