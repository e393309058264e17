// sample, device side: a cluster of blocks a row, each with its share of the vocabulary.
//
// A row's token depends on its logits and settings alone: shares and the order of every sum follow
// from the vocabulary. Where a sum decides what is kept (top-p), it is one of whole numbers, units
// of 2^-45, so that atomics may add it up in any order.
#include "cuda/common/launch.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/sample/draw.cuh"

namespace quire::cuda {

namespace sampling {

namespace {

constexpr uint32_t kInPrompt = 1U << 31;

// Off by at most two units in the last place: for sums of which float32 is asked.
__device__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ bool is_empty(const WordSlice& slice) { return slice.begin >= slice.end; }

__device__ int32_t token_of(const Params& p, int32_t word) {
  return word >= 0 ? word : p.recent[-1 - int64_t{word}];
}

// How often each token of the share came.
__device__ void count_tokens(const Row& row, uint32_t* counts) {
  const auto thread = static_cast<int>(threadIdx.x);
  const auto is_mine = [&](int32_t t) { return row.share.begin <= t && t < row.share.end; };
  for (int i = row.share.begin + thread; i < row.share.end; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = row.settings.prompt.begin + thread; i < row.settings.prompt.end; i += kThreads) {
    const int32_t token = token_of(row.p, row.p.words[i]);
    if (is_mine(token)) atomicOr(&counts[token], kInPrompt);
  }
  for (int i = row.settings.generated.begin + thread; i < row.settings.generated.end;
       i += kThreads) {
    const int32_t token = token_of(row.p, row.p.words[i]);
    if (is_mine(token)) atomicAdd(&counts[token], 1U);
  }
  __syncthreads();
}

__device__ bool is_finite_share(const Row& row) {
  bool is_finite = true;
  each_four_of_share(row, [&](int32_t, const float(&v)[4], int count) {
    for (int j = 0; j < 4; ++j) is_finite = is_finite && (j >= count || isfinite(v[j]));
  });
  return __syncthreads_and(is_finite ? 1 : 0) != 0;
}

// Steps 2 and 3, in place.
__device__ void adjust(const Row& row) {
  const SamplerRow& settings = row.settings;
  const bool is_counted = !is_empty(settings.prompt) || !is_empty(settings.generated);
  const bool is_masked = !is_empty(settings.mask);
  const auto thread = static_cast<int>(threadIdx.x);
  // A token is one thread's, so that its biases are added in the order of the list.
  for (int i = settings.bias.begin; i < settings.bias.end; i += 2) {
    const int32_t token = row.p.words[i];
    if (row.share.begin <= token && token < row.share.end && token % kThreads == thread) {
      row.logits[token] += __int_as_float(row.p.words[i + 1]);
    }
  }
  uint32_t* counts = row.p.counts + int64_t{blockIdx.y} * row.p.vocab;
  if (is_counted) count_tokens(row, counts);
  __syncthreads();
  if (!is_counted && !is_masked) return;
  for (int i = row.share.begin + thread; i < row.share.end; i += kThreads) {
    float logit = row.logits[i];
    if (is_masked &&
        (static_cast<uint32_t>(row.p.words[settings.mask.begin + i / 32]) >> (i % 32) & 1U) == 0) {
      logit = -INFINITY;
    }
    const uint32_t count = is_counted ? __ldcg(&counts[i]) : 0;
    if (count != 0) {
      logit = logit > 0 ? __fdiv_rn(logit, settings.repetition_penalty)
                        : __fmul_rn(logit, settings.repetition_penalty);
    }
    const auto generated = static_cast<float>(count & ~kInPrompt);
    if (generated > 0) {
      logit = __fsub_rn(logit, __fadd_rn(settings.presence_penalty,
                                         __fmul_rn(settings.frequency_penalty, generated)));
    }
    row.logits[i] = logit;
  }
  __syncthreads();
}

// The largest logit of the share, the sum of exp(logit - it), and whether all are finite.
__device__ Summary summarise(const Row& row) {
  constexpr float kLog2OfE = 1.44269504F;
  float poison = 0;  // NaN after a logit that is not finite
  Best best{-INFINITY, row.p.vocab};
  float sum = 0;  // of exp(logit - best.value), of this thread
  each_four_of_share(row, [&](int32_t first, const float(&v)[4], int count) {
    for (int j = 0; j < 4; ++j) {
      if (j < count) poison = fmaf(v[j], 0.0F, poison);
    }
    const float largest = fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3]));
    if (largest > best.value) {
      sum *= exp2_of((best.value - largest) * kLog2OfE);
      // In order of token: a tie stays with the lower one.
      for (int j = 3; j >= 0; --j) {
        if (v[j] == largest) best = {largest, first + j};
      }
    }
    if (best.value == -INFINITY) return;
    for (int j = 0; j < 4; ++j) sum += exp2_of((v[j] - best.value) * kLog2OfE);
  });
  const float mine = best.value;
  best = block_best<kWarps>(best, row.shared.bests);
  const double scaled =
      sum == 0 ? 0.0 : static_cast<double>(sum) * exp(static_cast<double>(mine - best.value));
  return {.best = best,
          .largest = best.value,
          .sum = block_sum<kWarps>(scaled, row.shared.warp_sums),
          .is_finite = __syncthreads_and(poison == 0 ? 1 : 0)};
}

// The same of the row, from its blocks'.
__device__ Summary summary_of_row(const Row& row) {
  const auto thread = static_cast<int>(threadIdx.x);
  Summary* summaries = row.shared.summaries;
  if (thread < kBlocks) summaries[thread] = row.of_block(thread).summary;
  __syncthreads();
  Summary all = summaries[0];
  for (int block = 1; block < kBlocks; ++block) {
    all.best = better(all.best, summaries[block].best);
    all.is_finite = all.is_finite != 0 && summaries[block].is_finite != 0 ? 1 : 0;
  }
  all.largest = all.best.value;
  double* sums = row.shared.all_sums;
  if (thread < kBlocks) {
    const Summary& own = summaries[thread];
    sums[thread] =
        own.sum > 0 ? own.sum * exp(static_cast<double>(own.largest - all.largest)) : 0.0;
  }
  __syncthreads();
  all.sum = 0;
  for (int block = 0; block < kBlocks; ++block) all.sum += sums[block];
  return all;
}

// The top_logprobs largest, by all blocks; block 0 writes them.
__device__ void list_top(const Row& row, float log_total, ops::SampledRow* out) {
  Best last{INFINITY, -1};
  const int32_t n = min(row.settings.top_logprobs, kTopLogprobsMax);
  for (int32_t k = 0; k < n; ++k) {
    Best best{-INFINITY, row.p.vocab};
    each_four_of_share(row, [&](int32_t first, const float(&v)[4], int count) {
      for (int j = 0; j < 4; ++j) {
        const Best x{v[j], first + j};
        const bool is_after =
            x.value < last.value || (x.value == last.value && x.index > last.index);
        if (j < count && is_after && x.value > -INFINITY) best = better(best, x);
      }
    });
    best = block_best<kWarps>(best, row.shared.bests);
    if (threadIdx.x == 0) row.shared.next[k % 2] = best;
    cluster_sync();
    last = row.of_block(0).next[k % 2];
    for (int block = 1; block < kBlocks; ++block) {
      last = better(last, row.of_block(block).next[k % 2]);
    }
    if (last.index == row.p.vocab) break;
    if (cluster_rank() == 0 && threadIdx.x == 0) {
      out->top_tokens[k] = last.index;
      out->top_logprobs[k] = last.value - log_total;
      out->n_top = k + 1;
    }
  }
}

__device__ void write_token(const Row& row, int32_t token, float log_total, ops::SampledRow* out) {
  out->verdict = static_cast<int32_t>(ops::SampleVerdict::ok);
  out->token = token;
  out->logprob = row.logits[token] - log_total;
}

__device__ void keep_token(const Params& p, int32_t token) {
  p.recent[static_cast<int64_t>(*p.step % static_cast<uint64_t>(p.n_recent)) * p.recent_stride +
           blockIdx.y] = token;
}

// Work of a cluster: one row. Grid (8, n_rows), clusters of 8, 256 threads, 38 KB of shared memory:
// 64 rows are all there at once. Reads the row once when greedy; a draw twice more; top-k and top-p
// twice more, and a third time when few logits are far apart; each of top_logprobs once more. All
// but the first come from the second-level cache.
__global__ __launch_bounds__(kThreads, 4) void sample_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) std::byte sample_shared[];
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const SamplerRow settings = p.rows[blockIdx.y];
  const Row row{.p = p,
                .settings = settings,
                .logits = p.logits + int64_t{blockIdx.y} * p.logits_stride,
                .share = part_of({0, p.vocab}, static_cast<int>(blockIdx.x), kBlocks),
                .shared = *reinterpret_cast<Shared*>(sample_shared)};
  ops::SampledRow* out = &p.out[blockIdx.y];
  const bool is_writer = blockIdx.x == 0 && threadIdx.x == 0;
  const bool is_adjusted = !is_empty(settings.bias) || !is_empty(settings.prompt) ||
                           !is_empty(settings.generated) || !is_empty(settings.mask);
  const bool was_finite = !is_adjusted || is_finite_share(row);
  if (is_adjusted) adjust(row);
  Summary own = summarise(row);
  // After the adjustments -inf is nothing bad.
  if (is_adjusted) own.is_finite = was_finite ? 1 : 0;
  if (threadIdx.x == 0) row.shared.summary = own;
  cluster_sync();
  const Summary all = summary_of_row(row);
  const float log_total = all.largest + static_cast<float>(log(all.sum));
  const bool is_dead = all.best.index == p.vocab;
  if (is_writer) {
    *out = {};
    out->verdict = static_cast<int32_t>(all.is_finite == 0 ? ops::SampleVerdict::bad_logits
                                                           : ops::SampleVerdict::dead_end);
    out->token = -1;
  }
  if (all.is_finite == 0 || is_dead) {
    if (is_writer) keep_token(p, -1);
  } else if (settings.temperature == 0) {
    if (is_writer) {
      const int32_t token = settings.given >= 0 ? settings.given : all.best.index;
      write_token(row, token, log_total, out);
      keep_token(p, token);
    }
    list_top(row, log_total, out);
  } else {
    // The writer's first words must be there before another block's.
    __threadfence();
    cluster_sync();
    const Weights weights{.largest = all.largest,
                          .inverse_temperature = 1.0F / settings.temperature};
    const int32_t token = draw(row, weights, truncate(row, weights));
    if (token >= 0 && threadIdx.x == 0) {
      write_token(row, token, log_total, out);
      keep_token(p, token);
    }
    list_top(row, log_total, out);
  }
  cluster_sync();  // nobody's memory goes away while others read it
}

}  // namespace

}  // namespace sampling

void sample(const Context& context, const ops::Sample& args) {
  using namespace sampling;
  const int64_t n_rows = args.logits[0];
  const int64_t vocab = args.logits[1];
  CHECK(vocab <= kBlocks * kHistogramTokensMax && n_rows < 65536);
  context.workspace->begin(Workspace::bytes_of<uint32_t>(n_rows * vocab));
  const Params p{.out = args.out.data,
                 .logits = args.logits.data,
                 .logits_stride = args.logits.stride[0],
                 .rows = args.rows.data,
                 .words = args.words.data,
                 .recent = args.recent.data,
                 .recent_stride = args.recent.stride[0],
                 .n_recent = args.recent[0],
                 .step = args.step.data,
                 .counts = context.workspace->take<uint32_t>(n_rows * vocab),
                 .vocab = static_cast<int32_t>(vocab),
                 .is_aligned = reinterpret_cast<uintptr_t>(args.logits.data) % 16 == 0 &&
                               args.logits.stride[0] % 4 == 0};
  launch(context.stream,
         {.grid = dim3(kBlocks, static_cast<unsigned>(n_rows)),
          .threads = kThreads,
          .shared_bytes = sizeof(Shared),
          .cluster = kBlocks},
         sample_kernel, p);
}

}  // namespace quire::cuda
