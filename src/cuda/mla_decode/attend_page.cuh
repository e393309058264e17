// Attention of eight heads of one token over one page in shared memory, by a group of four warps.
//
// Tokens of the page are the rows of the score tile and heads its columns; latents are the rows of
// the output tile and heads its columns. Every warp scores 16 tokens, and then sums 128 latents
// over all 64. Both tiles give a lane the same two heads, 2t and 2t + 1, so that what rescales the
// sums stays in registers. Scores are in units of log2: weights are 2^(score - largest).
//
// FP8: values are exact in float16; the query gets a power of two that makes its largest value fill
// float16's range, which is exact too. The scales of a token multiply its two partial scores, and
// its weight: weight * scale is rounded to float16 relative to the largest scale met so far (a
// power of two, `exponent`), with 2^15 to spare below 1.
#pragma once

#include "cuda/common/reduce.cuh"
#include "cuda/mla_decode/pages.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace quire::cuda {

inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = kGroupWarps * kWarpSize;
inline constexpr int kLatentsOfWarp = kLatentDim / kGroupWarps;
inline constexpr int kTiles = kLatentsOfWarp / 16;  // of the output, a warp
inline constexpr int kChunks = kRowValues / 64;     // of a row: the last is the rope key
inline constexpr int kLatentChunks = kLatentDim / 64;

// What the warps of a group tell each other.
struct GroupExchange {
  float largest[kGroupWarps][kHeadTile];
  float scale[kGroupWarps];  // FP8: largest latent scale
  float total[kGroupWarps][kHeadTile];
  // Weights as operand B: [part][tile / 4][head, pair of rows][tile % 4], a pair of rows a word.
  alignas(16) uint32_t weights[2][2][kHeadTile * 4][4];
};

// Operand B of the scores: chunk, step of 16 values, two registers.
struct Query {
  uint32_t b[kChunks][4][2];
  // Of a raw score of heads 2t, 2t + 1: softmax scale, log2(e), power of two.
  float factor[2];
};

// Sums so far, not normalised. Lane (g, t) has heads 2t, 2t + 1.
struct Sums {
  float out[kTiles][4];  // times 2^-exponent
  float largest[2];
  float total[2];  // of the tokens that this lane scored
  int exponent;
};

__device__ inline void group_sync(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
}

__device__ inline void both_groups_sync() {
  asm volatile("bar.sync 3, %0;" ::"n"(2 * kGroupThreads) : "memory");
}

// 2^n for n in [-149, 127].
__device__ inline float power_of_two(int n) {
  return n >= -126 ? __uint_as_float(static_cast<uint32_t>(n + 127) << 23)
                   : __uint_as_float(1U << (n + 149));
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline Sums empty_sums() {
  Sums s{};
  s.largest[0] = s.largest[1] = -INFINITY;
  s.exponent = 127;
  return s;
}

// The query in a stage: a row a head, latent and rope behind each other, and 16
// bytes more so that the rows of eight heads lie in different banks. FP8: the first four of them
// hold what undoes the power of two of the row.
inline constexpr int kQueryRowBytes = 2 * kRowValues;
inline constexpr int kQueryRowStride = kQueryRowBytes + 16;

// A pair of bfloat16, times a power of two, as float16.
__device__ inline uint32_t to_f16(uint32_t pair, bf16x2 power) {
  const float2 values = __bfloat1622float2(__hmul2(*reinterpret_cast<const bf16x2*>(&pair), power));
  const half2 converted = __floats2half2_rn(values.x, values.y);
  return *reinterpret_cast<const uint32_t*>(&converted);
}

// A head's query, a lane's words of it: two vectors of the latent and a pair of the rope.
struct QueryRow {
  uint4 latent[2];
  uint32_t rope;
};
static_assert(kQueryRowBytes == kWarpSize * (2 * 16 + 4));

// The lane's words of a row in shared memory.
__device__ inline QueryRow read_query(const std::byte* row) {
  const int lane = lane_of_thread();
  const auto* latent = reinterpret_cast<const uint4*>(row);
  const auto* rope = reinterpret_cast<const uint32_t*>(row + 2 * kLatentDim);
  return {{latent[lane], latent[kWarpSize + lane]}, rope[lane]};
}
__device__ inline void write_query(const QueryRow& q, std::byte* row) {
  const int lane = lane_of_thread();
  auto* latent = reinterpret_cast<uint4*>(row);
  latent[lane] = q.latent[0];
  latent[kWarpSize + lane] = q.latent[1];
  reinterpret_cast<uint32_t*>(row + 2 * kLatentDim)[lane] = q.rope;
}

// Calls op(uint32_t&) for each pair of a lane's values.
template <class Op>
__device__ inline void each_pair(QueryRow* q, const Op& op) {
#pragma unroll
  for (uint4& four : q->latent) {
    op(four.x);
    op(four.y);
    op(four.z);
    op(four.w);
  }
  op(q->rope);
}

// FP8: a head's query becomes float16, by one warp; its largest value comes to lie in [2^14, 2^15).
// What undoes that goes behind the place of its row.
__device__ inline void convert_query(QueryRow* q, std::byte* row) {
  bf16x2 most = __float2bfloat162_rn(0);
  each_pair(q, [&](uint32_t& pair) {
    most = __hmax2(most, __habs2(*reinterpret_cast<const bf16x2*>(&pair)));
  });
  const float of_lane = fmaxf(__low2float(most), __high2float(most));
  const uint32_t largest = __reduce_max_sync(kFullWarp, __float_as_uint(of_lane));
  // 0, infinity and denormals have no exponent to speak of, and need none.
  const int exponent = min(14 - (static_cast<int>(largest >> 23) - 127), 126);
  const bf16x2 power = __float2bfloat162_rn(power_of_two(exponent));
  each_pair(q, [&](uint32_t& pair) { pair = to_f16(pair, power); });
  if (lane_of_thread() == 0) {
    *reinterpret_cast<float*>(row + kQueryRowBytes) = power_of_two(-exponent);
  }
}

// Operand B for the order in which score_tokens numbers the 16 values of a step. FP8: a lane's 16
// bytes of a row are four steps of four; BF16: as tiles are loaded.
template <KvFormat kFormat>
__device__ inline void load_query(const std::byte* rows, float factor, Query* q) {
  const int lane = lane_of_thread();
  q->factor[0] = q->factor[1] = factor;
  if constexpr (kFormat == KvFormat::bf16) {
    const std::byte* from = rows + lane % 8 * kQueryRowStride + lane / 8 * 16;
#pragma unroll
    for (int i = 0; i < 2 * kChunks; ++i) {
      const MmaA two = load_tiles(from + 64 * i);
      auto& b = q->b[i / 2];
      b[i % 2 * 2][0] = two.a0;
      b[i % 2 * 2][1] = two.a1;
      b[i % 2 * 2 + 1][0] = two.a2;
      b[i % 2 * 2 + 1][1] = two.a3;
    }
  } else {
    const std::byte* from = rows + lane / 4 * kQueryRowStride + lane % 4 * 32;
#pragma unroll
    for (int i = 0; i < 2 * kChunks; ++i) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + i / 2 * 128 + i % 2 * 16);
      auto& b = q->b[i / 2];
      b[i % 2 * 2][0] = four.x;
      b[i % 2 * 2][1] = four.y;
      b[i % 2 * 2 + 1][0] = four.z;
      b[i % 2 * 2 + 1][1] = four.w;
    }
    const std::byte* undo = rows + lane % 4 * 2 * kQueryRowStride + kQueryRowBytes;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      q->factor[j] *= *reinterpret_cast<const float*>(undo + j * kQueryRowStride);
    }
  }
}

// Tokens from `count` on hold nothing, or NaN: zeros do no harm.
template <KvFormat kFormat>
__device__ inline void clear_tail(const StagedPage<kFormat>& page, int count, int group) {
  constexpr int kVectors = PageShape<kFormat>::kRowBytes / 16;  // of a row
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  for (int i = thread; i < (kPageTokens - count) * kVectors; i += kGroupThreads) {
    reinterpret_cast<uint4*>(page.row(count + i / kVectors))[i % kVectors] = {0, 0, 0, 0};
  }
  if constexpr (kFormat != KvFormat::bf16) {
    if (thread >= count && thread < kPageTokens) *page.scales(thread) = {0, 0};
  }
  fence_async_proxy();  // before the next page is copied over it
  group_sync(group);
}

// Scores of the warp's 16 tokens, unscaled: rows tile 2 warp and tile 2 warp + 1 (BF16), or a
// lane's two tokens of one pair (FP8), whose rows this returns in token[2].
template <KvFormat kFormat>
__device__ inline void score_tokens(const StagedPage<kFormat>& page, const Query& q, int warp,
                                    float (&latent)[4], float (&rope)[4], int (&token)[2]) {
  using Shape = PageShape<kFormat>;
  const int lane = lane_of_thread();
  const int g = lane / 4;
  float sum[4][4] = {};
  float last[2][4] = {};
  if constexpr (kFormat == KvFormat::bf16) {
    token[0] = Shape::token_of(2 * warp, g);
    token[1] = Shape::token_of(2 * warp + 1, g);
    // Tiles: rows of either token, then the next 8 values of both.
    const std::byte* from =
        page.row(Shape::token_of(2 * warp + lane / 8 % 2, lane % 8)) + 16 * (lane / 16);
#pragma unroll
    for (int step = 0; step < 4 * kChunks; ++step) {
      const MmaA a = load_tiles(from + 32 * step);
      const auto& b = q.b[step / 4][step % 4];
      mma_bf16(step < 4 * kLatentChunks ? sum[step % 4] : last[step % 2], a, b[0], b[1]);
    }
  } else {
    // Even and odd rows lie in different halves of the banks: even lanes g begin with the even
    // token of their pair, odd ones with the odd one.
    const int tile = 2 * warp + g % 2;
    const int pair = g / 2 * 2;
    token[0] = Shape::token_of(tile, pair + g % 2);
    token[1] = Shape::token_of(tile, pair + (g + 1) % 2);
    const std::byte* from[2] = {page.row(token[0]) + 16 * (lane % 4),
                                page.row(token[1]) + 16 * (lane % 4)};
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const uint4 x = *reinterpret_cast<const uint4*>(from[0] + 64 * chunk);
      const uint4 y = *reinterpret_cast<const uint4*>(from[1] + 64 * chunk);
      const uint32_t low[4] = {x.x, x.y, x.z, x.w};
      const uint32_t high[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        MmaA a;
        const auto& b = q.b[chunk][step];
        if (chunk < kLatentChunks) {
          e4m3x4_to_f16(low[step], &a.a0, &a.a2);
          e4m3x4_to_f16(high[step], &a.a1, &a.a3);
          mma_f16(sum[step], a, b[0], b[1]);
        } else {
          int8x4_to_f16(low[step], &a.a0, &a.a2);
          int8x4_to_f16(high[step], &a.a1, &a.a3);
          mma_f16(last[step % 2], a, b[0], b[1]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    latent[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
    rope[i] = last[0][i] + last[1][i];
  }
}

// The largest over the lanes of equal t: over the warp's tokens.
__device__ inline float max_over_tokens(float x) {
  for (int step = 4; step < kWarpSize; step *= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  }
  return x;
}

// Weights of the warp's tokens, to all warps; rescales the sums to the new largest score.
template <KvFormat kFormat>
__device__ inline void weigh_tokens(const float (&score)[4], const float (&scale)[2],
                                    const int (&token)[2], int group, int warp,
                                    GroupExchange* exchange, Sums* sums) {
  using Shape = PageShape<kFormat>;
  const int lane = lane_of_thread();
  const int t = lane % 4;
  float largest[2];
  for (int j = 0; j < 2; ++j) largest[j] = max_over_tokens(fmaxf(score[j], score[2 + j]));
  if (lane < 4) {
    *reinterpret_cast<float2*>(&exchange->largest[warp][2 * t]) = {largest[0], largest[1]};
  }
  if constexpr (kFormat != KvFormat::bf16) {
    const float of_warp = max_over_tokens(fmaxf(fabsf(scale[0]), fabsf(scale[1])));
    if (lane == 0) exchange->scale[warp] = of_warp;
  }
  group_sync(group);

  float shrink[2];
  for (int j = 0; j < 2; ++j) {
    largest[j] = sums->largest[j];
    for (int w = 0; w < kGroupWarps; ++w) {
      largest[j] = fmaxf(largest[j], exchange->largest[w][2 * t + j]);
    }
    shrink[j] = exp2_fast(sums->largest[j] - largest[j]);
    sums->largest[j] = largest[j];
    sums->total[j] *= shrink[j];
  }
  float power = 1;  // of weights, as they are stored
  if constexpr (kFormat != KvFormat::bf16) {
    float of_page = exchange->scale[0];
    for (int w = 1; w < kGroupWarps; ++w) of_page = fmaxf(of_page, exchange->scale[w]);
    const int wanted = 14 - (static_cast<int>(__float_as_uint(of_page) >> 23) - 127);
    const int exponent = max(min(sums->exponent, wanted), -113);
    const float change = power_of_two(max(exponent - sums->exponent, -149));
    for (int j = 0; j < 2; ++j) shrink[j] *= change;
    sums->exponent = exponent;
    power = power_of_two(exponent);
  }
  float weight[4];
  for (int i = 0; i < 4; ++i) {
    weight[i] = exp2_fast(score[i] - largest[i % 2]);
    sums->total[i % 2] += weight[i];
  }
  for (int i = 0; i < 4; ++i) {
    const int tile = Shape::tile_of(token[i / 2]);
    const int row = Shape::row_of(token[i / 2]);
    const int head = 2 * t + i % 2;
    const auto word = [&](int part) {
      return reinterpret_cast<uint16_t*>(
                 &exchange->weights[part][tile / 4][head * 4 + row / 2][tile % 4]) +
             row % 2;
    };
    if constexpr (kFormat == KvFormat::bf16) {
      const bf16 high = __float2bfloat16_rn(weight[i]);
      *word(0) = __bfloat16_as_ushort(high);
      *word(1) = __bfloat16_as_ushort(__float2bfloat16_rn(weight[i] - __bfloat162float(high)));
    } else {
      *word(0) = __half_as_ushort(__float2half_rn(weight[i] * (scale[i / 2] * power)));
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int i = 0; i < 4; ++i) sums->out[tile][i] *= shrink[i % 2];
  }
  group_sync(group);
}

// out[latent, head] += sum over the page's tokens of value[token, latent] * weight[token, head].
template <KvFormat kFormat>
__device__ inline void add_values(const StagedPage<kFormat>& page, int warp,
                                  const GroupExchange& exchange, Sums* sums) {
  using Shape = PageShape<kFormat>;
  const int lane = lane_of_thread();
  uint32_t b[Shape::kWeightParts][8];  // tiles of tokens, in order
#pragma unroll
  for (int part = 0; part < Shape::kWeightParts; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 four = *reinterpret_cast<const uint4*>(exchange.weights[part][half][lane]);
      b[part][4 * half] = four.x;
      b[part][4 * half + 1] = four.y;
      b[part][4 * half + 2] = four.z;
      b[part][4 * half + 3] = four.w;
    }
  }
  if constexpr (kFormat == KvFormat::bf16) {
    // Tiles: latents 0 to 7 and 8 to 15 of one tile of tokens, then of the next.
    const std::byte* from = page.row(Shape::token_of(lane / 16, lane % 8)) +
                            2 * kLatentsOfWarp * warp + 16 * (lane / 8 % 2);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const MmaA a = load_transposed(from + 2 * step * Shape::kRowBytes + 32 * tile);
        mma_bf16(sums->out[tile], a, b[0][2 * step], b[0][2 * step + 1]);
        mma_bf16(sums->out[tile], a, b[1][2 * step], b[1][2 * step + 1]);
      }
    }
  } else {
    // Tiles of 8 tokens and 8 pairs of latents: two tiles of tokens of 16 latents, then of the next
    // 16. Transposed, a register has two tokens of two latents, and a permutation sorts them.
    const std::byte* from = page.row(Shape::token_of(lane / 8 % 2, lane % 8)) +
                            kLatentsOfWarp * warp + 16 * (lane / 16);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; tile += 2) {
        const MmaA raw = load_transposed(from + 4 * step * Shape::kRowBytes + 16 * tile);
        const uint32_t four[4] = {raw.a0, raw.a1, raw.a2, raw.a3};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          MmaA a;
          e4m3x4_to_f16(__byte_perm(four[2 * i], 0, 0x3120), &a.a0, &a.a1);
          e4m3x4_to_f16(__byte_perm(four[2 * i + 1], 0, 0x3120), &a.a2, &a.a3);
          mma_f16(sums->out[tile + i], a, b[0][2 * step], b[0][2 * step + 1]);
        }
      }
    }
  }
}

// Adds the first `count` tokens of a page, by the four warps of a group.
template <KvFormat kFormat>
__device__ inline void attend_page(const StagedPage<kFormat>& page, int count, const Query& q,
                                   int group, GroupExchange* exchange, Sums* sums) {
  const int warp = warp_of_thread() % kGroupWarps;
  if (count < kPageTokens) clear_tail(page, count, group);
  float latent[4];
  float rope[4];
  int token[2];
  score_tokens(page, q, warp, latent, rope, token);
  float scale[2] = {1, 1};
  float score[4];
  for (int i = 0; i < 4; ++i) {
    float raw = latent[i] + rope[i];
    if constexpr (kFormat != KvFormat::bf16) {
      const float2 of_token = *page.scales(token[i / 2]);
      scale[i / 2] = of_token.x;
      raw = latent[i] * of_token.x + rope[i] * of_token.y;
    }
    score[i] = token[i / 2] < count ? raw * q.factor[i % 2] : -INFINITY;
  }
  weigh_tokens<kFormat>(score, scale, token, group, warp, exchange, sums);
  add_values(page, warp, *exchange, sums);
}

}  // namespace quire::cuda
