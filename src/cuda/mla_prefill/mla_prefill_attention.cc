// Attention by head: latents of the chunks, keys and values by head (two products), attention; in
// rounds of as many keys as fit a bounded workspace.
#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/gemm/blas.h"
#include "cuda/kernels.h"
#include "cuda/mla_prefill/chunk_latents.h"
#include "cuda/mla_prefill/head_attention.h"
#include "cuda/tune/key_splits.h"

namespace quire::cuda {

namespace {

// Keys, values and latents of a round: 36,000 keys of 8 heads.
constexpr int64_t kRoundBytes = int64_t{192} << 20;
// With fewer tokens in the longest chunk the absorbed form, which expands nothing, is faster.
constexpr int64_t kChunkTokensMin = 256;

struct Round {
  View<Bf16, 2> latent;  // [n_keys, kv_lora_rank]
  View<Bf16, 2> rope;    // [n_keys, rope_dim]
  View<Bf16, 3> key;     // [n_keys, n_heads, nope_dim]
  View<Bf16, 3> value;   // [n_keys, n_heads, v_dim]
};

struct Buffers {
  Round largest;
  HeadSums sums;        // null when there is one round
  SplitResults splits;  // null when there are several, or one split
};

bool is_contiguous(const View<const Bf16, 3>& x) {
  return x.stride[1] == x[2] && x.stride[0] == x[1] * x[2];
}

// Rows in whole pieces of 16 bytes, as bulk copies want them.
bool is_at_16(const View<const Bf16, 3>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride[0] % 8 == 0 &&
         x.stride[1] % 8 == 0 && x[2] % 8 == 0;
}

bool is_possible(const ops::MlaPrefillAttention& args) {
  const KvPageLayout& layout = *args.kv.layout;
  return args.q_nope[2] <= kHeadNopeMax && args.q_rope[2] <= kHeadRopeMax &&
         args.out[2] <= kHeadValueMax && layout.kv_lora_rank % 16 == 0 &&
         layout.rope_dim % 16 == 0 && is_at_16(args.q_nope) && is_at_16(args.q_rope) &&
         is_at_16(args.out) && is_contiguous(args.w_uk) && is_contiguous(args.w_uv);
}

Buffers take_buffers(const Context& context, const ops::MlaPrefillAttention& args) {
  const int64_t rank = args.w_uk[2];
  const int64_t rope_dim = args.q_rope[2];
  const int64_t n_heads = args.out[1];
  const int64_t key_values = rank + rope_dim + n_heads * (args.q_nope[2] + args.out[2]);
  const int64_t blocks_max = std::max<int64_t>(1, kRoundBytes / (2 * kKeyBlock * key_values));
  const int64_t n_blocks = std::min(args.tokens.key_blocks, blocks_max);
  const int64_t n_keys = n_blocks * kKeyBlock;
  const bool has_sums = n_blocks < args.tokens.key_blocks;
  const int64_t n_sums = has_sums ? args.out[0] * n_heads : 0;
  const int64_t n_splits = has_sums ? 1 : head_attention_splits(context, args);
  const SplitShape splits{args.out[0], n_heads, n_splits, args.out[2]};
  Workspace& workspace = *context.workspace;
  workspace.begin(Workspace::bytes_of<Bf16>(n_keys * key_values) + 4 * kBufferAlignment +
                  Workspace::bytes_of<float>(n_sums * kHeadValueMax) +
                  2 * Workspace::bytes_of<float>(n_sums) + kSplitBytesMax + 4 * kBufferAlignment);
  Buffers out;
  out.largest.latent = view_of(workspace.take<Bf16>(n_keys * rank), n_keys, rank);
  out.largest.rope = view_of(workspace.take<Bf16>(n_keys * rope_dim), n_keys, rope_dim);
  out.largest.key = view_of(workspace.take<Bf16>(n_keys * n_heads * args.q_nope[2]), n_keys,
                            n_heads, args.q_nope[2]);
  out.largest.value =
      view_of(workspace.take<Bf16>(n_keys * n_heads * args.out[2]), n_keys, n_heads, args.out[2]);
  if (has_sums) {
    out.sums = {.sum = workspace.take<float>(n_sums * kHeadValueMax),
                .total = workspace.take<float>(n_sums),
                .largest = workspace.take<float>(n_sums)};
  }
  if (n_splits > 1) out.splits = take_splits(workspace, splits);
  return out;
}

// out[j, h, :] = weight[h] latent[j]
void expand(const Context& context, const View<Bf16, 3>& out, const View<const Bf16, 3>& weight,
            const View<const Bf16, 2>& latent) {
  const BlasAnswer answer = context.blas->multiply({.weight = weight.data,
                                                    .order = WeightOrder::out_in,
                                                    .weight_stride = weight.stride[1],
                                                    .x = latent.data,
                                                    .x_stride = latent.stride[0],
                                                    .out = out.data,
                                                    .out_stride = out.stride[0],
                                                    .n_tokens = out[0],
                                                    .n_out = weight[0] * weight[1],
                                                    .n_in = weight[2]});
  CUDA_MUST(answer == BlasAnswer::done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace

bool attends_by_head(const Context& context, const ops::MlaPrefillAttention& args) {
  // The products that expand may sum in an order that depends on how many keys there are.
  return !context.deterministic && args.tokens.row_tokens_max >= kChunkTokensMin &&
         args.tokens.key_blocks > 0 && is_possible(args);
}

void mla_prefill_attention(const Context& context, const ops::MlaPrefillAttention& args) {
  CHECK(is_possible(args));
  const Buffers buffers = take_buffers(context, args);
  // The chunks' rows alone, with tokens numbered as in the whole step.
  const int64_t n_chunks = args.kv.table[0] - args.tokens.n_lone;
  PagedKv kv = args.kv;
  kv.table = args.kv.table.rows(args.tokens.n_lone, n_chunks);
  TokenRows tokens = args.tokens;
  tokens.row_begin = args.tokens.row_begin.rows(args.tokens.n_lone, n_chunks + 1);
  const int64_t n_blocks = buffers.largest.latent[0] / kKeyBlock;
  for (int64_t first = 0; first < args.tokens.key_blocks; first += n_blocks) {
    const int64_t n_keys = std::min(n_blocks, args.tokens.key_blocks - first) * kKeyBlock;
    const Round round{.latent = buffers.largest.latent.rows(0, n_keys),
                      .rope = buffers.largest.rope.rows(0, n_keys),
                      .key = buffers.largest.key.rows(0, n_keys),
                      .value = buffers.largest.value.rows(0, n_keys)};
    chunk_latents(context, {.latent = round.latent,
                            .rope = round.rope,
                            .kv = kv,
                            .tokens = tokens,
                            .layer = args.layer,
                            .first_block = first});
    expand(context, round.key, args.w_uk, round.latent);
    expand(context, round.value, args.w_uv, round.latent);
    head_attention(context, {.out = args.out,
                             .q_nope = args.q_nope,
                             .q_rope = args.q_rope,
                             .k_nope = round.key,
                             .k_rope = round.rope,
                             .v = round.value,
                             .tokens = tokens,
                             .first_block = first,
                             .sums = buffers.sums,
                             .splits = buffers.splits,
                             .scale = args.scale});
  }
}

}  // namespace quire::cuda
