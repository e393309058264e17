#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;

struct Params {
  PagedBlocks kv;
  const int32_t* row;       // [n_tokens] row of the page table
  const int32_t* position;  // [n_tokens]
  const bf16* latent;       // [n_tokens, kv.latent_dim]
  const bf16* rope;         // [n_tokens, kv.rope_dim]
  int64_t latent_stride;    // elements between tokens
  int64_t rope_stride;      // elements between tokens
  int bits_dropped;
};

// Rounds a finite e4m3 to nearest even with its low `bits` mantissa bits zero, saturated at the
// largest such value.
__device__ uint8_t drop_bits(uint8_t x, int bits) {
  const uint32_t magnitude = x & 0x7fU;
  if (bits == 0 || magnitude == 0x7fU) return x;
  const uint32_t unit = 1U << bits;
  const uint32_t rounded = magnitude + unit / 2 - 1 + ((magnitude >> bits) & 1U);
  const uint32_t largest = 0x7eU & ~(unit - 1);
  return static_cast<uint8_t>((x & 0x80U) | min(rounded & ~(unit - 1), largest));
}

// One part of a token, by all threads of the block. Returns the scale of its values.
__device__ float cast_part(const bf16* x, int n, int bits_dropped, uint8_t* out) {
  __shared__ float shared[kWarps];
  float amax = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    amax = fmaxf(amax, fabsf(__bfloat162float(x[i])));
  }
  amax = warp_max(amax);
  __syncthreads();
  if (lane_of_thread() == 0) shared[warp_of_thread()] = amax;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) amax = fmaxf(amax, shared[warp]);
  const float scale = e4m3_scale(amax);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    out[i] = drop_bits(to_e4m3(__fdiv_rn(__bfloat162float(x[i]), scale)), bits_dropped);
  }
  return scale;
}

// One token a block. Grid n_tokens, 128 threads, 16 bytes of shared memory. Moves 1,152 + 584
// bytes (FP8) or 2 * 1,152 (BF16) a token of 512 + 64 values: bound by the launch. A page outside
// the pool is not written.
__global__ __launch_bounds__(kThreads) void kv_append_kernel(const __grid_constant__ Params p) {
  const int64_t token = blockIdx.x;
  const int32_t position = p.position[token];
  const int64_t page = p.kv.table[p.row[token] * p.kv.table_stride + position / kPageTokens];
  if (page < 0 || page >= p.kv.n_pages) return;
  const int32_t slot = position % kPageTokens;
  std::byte* block = p.kv.block(page);
  const bf16* latent = p.latent + token * p.latent_stride;
  const bf16* rope = p.rope + token * p.rope_stride;
  const int64_t first = int64_t{slot} * p.kv.values();
  if (p.kv.format == KvFormat::bf16) {
    bf16* out = reinterpret_cast<bf16*>(block) + first;
    for (int i = static_cast<int>(threadIdx.x); i < p.kv.values(); i += kThreads) {
      out[i] = i < p.kv.latent_dim ? latent[i] : rope[i - p.kv.latent_dim];
    }
    return;
  }
  auto* out = reinterpret_cast<uint8_t*>(block) + first;
  const float latent_scale = cast_part(latent, p.kv.latent_dim, p.bits_dropped, out);
  const float rope_scale = cast_part(rope, p.kv.rope_dim, p.bits_dropped, out + p.kv.latent_dim);
  if (threadIdx.x == 0) {
    auto* scales = reinterpret_cast<float*>(block + PagedBlocks::scales_at(p.kv.values()));
    scales[2 * slot] = latent_scale;
    scales[2 * slot + 1] = rope_scale;
  }
}

}  // namespace

void kv_append(const Context& context, const ops::KvAppend& args) {
  const Params p{.kv = blocks_of(args.kv, args.layer),
                 .row = args.tokens.row.data,
                 .position = args.tokens.position.data,
                 .latent = device_type(args.latent.data),
                 .rope = device_type(args.rope.data),
                 .latent_stride = args.latent.stride[0],
                 .rope_stride = args.rope.stride[0],
                 .bits_dropped = args.fp8_bits_dropped};
  kv_append_kernel<<<static_cast<unsigned>(args.latent[0]), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace quire::cuda
