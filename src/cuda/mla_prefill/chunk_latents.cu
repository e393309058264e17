// Latents of chunks, read back from the pages as stored: bfloat16 rows for the products that expand
// them by head.
#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/mla_prefill/chunk_keys.cuh"
#include "cuda/mla_prefill/chunk_latents.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 16;  // of a block: four blocks a page, so that one wave hides its latency
constexpr int kPagesOfBlock = static_cast<int>(kKeyBlock) / kPageTokens;

struct Params {
  PagedBlocks kv;
  ChunkKeys keys;
  int first_block;
  bf16* latent;  // [128 n_blocks, kv.latent_dim]
  bf16* rope;    // [128 n_blocks, kv.rope_dim]
};

struct Page {
  const std::byte* block;
  int n_tokens;  // that are there
};

// By one warp: page `index` of the round.
__device__ Page find_page(const Params& p, int index) {
  const InRow at = p.keys.find(p.first_block + index / kPagesOfBlock);
  if (at.row < 0) return {nullptr, 0};
  const int page = kPagesOfBlock * at.index + index % kPagesOfBlock;
  const int n_tokens =
      min(p.keys.position[p.keys.row_begin[at.row + 1] - 1] + 1 - page * kPageTokens, kPageTokens);
  if (n_tokens <= 0) return {nullptr, 0};
  const int64_t physical = p.kv.table[at.row * p.kv.table_stride + page];
  return {p.kv.block(min(max(physical, int64_t{0}), p.kv.n_pages - 1)), n_tokens};
}

// Sixteen values as stored, times `scale`, rounded once.
__device__ void copy_fp8(const uint4& stored, RowPart part, float scale, bf16* to) {
  const uint32_t four[4] = {stored.x, stored.y, stored.z, stored.w};
  uint32_t pair[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    bf16x2 low;
    bf16x2 high;
    stored_to_bf16(four[j], part, &low, &high);
    const float2 a = __bfloat1622float2(low);
    const float2 b = __bfloat1622float2(high);
    pair[2 * j] = bits_of(__floats2bfloat162_rn(a.x * scale, a.y * scale));
    pair[2 * j + 1] = bits_of(__floats2bfloat162_rn(b.x * scale, b.y * scale));
  }
  reinterpret_cast<uint4*>(to)[0] = {pair[0], pair[1], pair[2], pair[3]};
  reinterpret_cast<uint4*>(to)[1] = {pair[4], pair[5], pair[6], pair[7]};
}

// Work of a block: 16 tokens of a page. Grid (pages, 4), 256 threads. Moves each of the page's rows
// once (FP8 584 B, BF16 1,152 B) and writes 1,152 B: bound by memory. What no token fills becomes
// zero.
template <KvFormat kFormat>
__global__ __launch_bounds__(kThreads) void chunk_latents_kernel(const __grid_constant__ Params p) {
  constexpr int kVector = kFormat == KvFormat::bf16 ? 8 : 16;  // values of 16 stored bytes
  __shared__ Page shared_page;
  if (warp_of_thread() == 0) {
    const Page found = find_page(p, static_cast<int>(blockIdx.x));
    if (lane_of_thread() == 0) shared_page = found;
  }
  __syncthreads();
  const Page page = shared_page;
  const int vectors = p.kv.values() / kVector;  // of a row
  const int first_token = static_cast<int>(blockIdx.y) * kTokens;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * vectors; i += kThreads) {
    const int token = first_token + i / vectors;
    const int column = i % vectors * kVector;
    const bool is_latent = column < p.kv.latent_dim;
    const int64_t row = int64_t{blockIdx.x} * kPageTokens + token;
    bf16* to = is_latent ? p.latent + row * p.kv.latent_dim + column
                         : p.rope + row * p.kv.rope_dim + column - p.kv.latent_dim;
    const bool is_there = token < page.n_tokens;
    uint4 stored{0, 0, 0, 0};
    if (is_there) stored = reinterpret_cast<const uint4*>(page.block)[first_token * vectors + i];
    if constexpr (kFormat == KvFormat::bf16) {
      *reinterpret_cast<uint4*>(to) = stored;
    } else {
      float scale = 0;
      if (is_there) {
        scale = reinterpret_cast<const float*>(
            page.block + PagedBlocks::scales_at(p.kv.values()))[2 * token + (is_latent ? 0 : 1)];
      }
      copy_fp8(stored, p.kv.part_of(column), scale, to);
    }
  }
}

}  // namespace

void chunk_latents(const Context& context, const ChunkLatents& args) {
  const Params p{.kv = blocks_of(args.kv, args.layer),
                 .keys = {.row_begin = args.tokens.row_begin.data,
                          .position = args.tokens.position.data,
                          .n_rows = static_cast<int32_t>(args.tokens.row_begin[0] - 1)},
                 .first_block = static_cast<int>(args.first_block),
                 .latent = device_type(args.latent.data),
                 .rope = device_type(args.rope.data)};
  const dim3 grid(static_cast<unsigned>(args.latent[0] / kPageTokens), kPageTokens / kTokens);
  switch (args.kv.layout->format) {
    case KvFormat::bf16:
      chunk_latents_kernel<KvFormat::bf16><<<grid, kThreads, 0, context.stream>>>(p);
      break;
    case KvFormat::fp8_e4m3_584:
      chunk_latents_kernel<KvFormat::fp8_e4m3_584><<<grid, kThreads, 0, context.stream>>>(p);
      break;
  }
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
