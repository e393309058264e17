// kv_append and append_latent.
#include <algorithm>

#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/common/numbers.cuh"
#include "cuda/common/paged_block.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/pointwise/norm.cuh"
#include "cuda/pointwise/rotate.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 288;  // of kv_append, and the most of append_latent
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kKeyWarp = 8;              // of kv_append
constexpr int kQueryMax = 8 * kThreads;  // values of a query, in append_latent
constexpr int kValuesMax = 1024;         // of a token's row there
// append_latent with a row in registers: a lane has two vectors of eight values of the latent.
constexpr int kLatentMax = 2 * 8 * kWarpSize;  // values
constexpr int kLatentWarps = 4;                // each stores four of a lane's sixteen values
constexpr int kRowThreads = (kLatentWarps + 1) * kWarpSize;  // and a warp for the shared key

// Where the rows of a step go, in one layer.
struct Destination {
  PagedBlocks kv;
  const TokenPlace* places;  // [n_tokens]
  int bits_dropped;
};

struct AppendParams {
  Destination to;
  const bf16* latent;     // [n_tokens, kv.latent_dim]
  const bf16* rope;       // [n_tokens, kv.rope_dim]
  int64_t latent_stride;  // elements between tokens
  int64_t rope_stride;    // elements between tokens
};

struct LatentParams {
  Destination to;
  const bf16* kv_a;       // [n_tokens, kv.values()]
  const bf16* kv_a_norm;  // [kv.latent_dim]
  bf16* q_a;              // [n_tokens, q_dim], in and out
  const bf16* q_a_norm;   // [q_dim]
  int64_t kv_a_stride;    // elements between tokens
  int64_t q_a_stride;     // elements between tokens
  int64_t q_dim;
  bool query_in_registers;  // q_a is at 16 bytes, and its norm
  Rotation tables;          // of the key: no x
  float eps;
};

// Rounds to nearest even with the low `bits` bits zero, saturated at the largest such value that is
// no more than `largest`. bits > 0.
__device__ uint32_t drop_bits(uint32_t magnitude, int bits, uint32_t largest) {
  const uint32_t unit = 1U << bits;
  const uint32_t rounded = magnitude + unit / 2 - 1 + ((magnitude >> bits) & 1U);
  return min(rounded, largest) & ~(unit - 1);
}

// Of an e4m3; NaN stays as it is.
__device__ uint32_t drop_bits(uint32_t x, int bits) {
  const uint32_t magnitude = x & 0x7fU;
  if (bits == 0 || magnitude == 0x7fU) return x;
  return (x & 0x80U) | drop_bits(magnitude, bits, 0x7e);
}

__device__ uint32_t drop_bits_of_four(uint32_t x, int bits) {
  uint32_t out = 0;
  for (int i = 0; i < 32; i += 8) out |= drop_bits(x >> i & 0xffU, bits) << i;
  return out;
}

// A value of a rope key as an integer; 0 of NaN.
__device__ uint8_t cast_key_value(float x, const KeyScale& scale, int bits_dropped) {
  int value = __float2int_rn(x * scale.of_value);
  if (bits_dropped > 0) {
    const auto magnitude =
        static_cast<int>(drop_bits(static_cast<uint32_t>(abs(value)), 2 * bits_dropped, 127));
    value = value < 0 ? -magnitude : magnitude;
  }
  return static_cast<uint8_t>(value);
}

// The magnitude of a bfloat16 as a number in whose order NaN comes last.
__device__ uint32_t magnitude_bits(uint32_t x) { return x & 0x7fffU; }
__device__ KeyScale key_scale_of(uint32_t largest) {
  return key_scale(__uint_as_float(largest << 16));
}

// Division of a row's values by its scale with the bits of an IEEE division, and without its branch
// a value: the reciprocal once, then a quotient and its correction. Checked for every pair of
// significands of value and amax, quotients down to 2^-12 (less is a zero in e4m3, corrected or
// not) and a reciprocal that begins off by up to two last places; rows of scales near the ends of
// float32 divide.
class RowScale {
 public:
  // Of a row whose largest magnitude is `amax`, a bfloat16.
  __device__ explicit RowScale(float amax) {
    is_plain_ = amax >= 0x1p-80F && amax <= 0x1p80F;
    if (!is_plain_) {
      scale_ = e4m3_scale(amax);
      return;
    }
    constexpr float kInverse = 1.0F / kFp8Max;
    const float guess = amax * kInverse;
    scale_ = __fmaf_rn(__fmaf_rn(-kFp8Max, guess, amax), kInverse, guess);
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(scale_));
    inverse_ = __fmaf_rn(__fmaf_rn(-scale_, inverse, 1.0F), inverse, inverse);
  }

  __device__ float value() const { return scale_; }

  // A pair of bfloat16 as two e4m3, the first in the low byte: their quotients, saturated at 448;
  // NaN gives 0x7f. Signs are those of the pair, of zeros and NaN, too.
  __device__ uint32_t cast(uint32_t pair) const {
    const float2 x = floats_of(pair);
    const float2 quotient = is_plain_ ? make_float2(over(x.x), over(x.y))
                                      : make_float2(__fdiv_rn(x.x, scale_), __fdiv_rn(x.y, scale_));
    const uint32_t values = __nv_cvt_float2_to_fp8x2(quotient, __NV_SATFINITE, __NV_E4M3);
    return values | (pair >> 8 & 0x80U) | (pair >> 16 & 0x8000U);
  }

 private:
  __device__ float over(float x) const {
    const float guess = x * inverse_;
    return __fmaf_rn(__fmaf_rn(-scale_, guess, x), inverse_, guess);
  }

  float scale_;
  float inverse_ = 0;
  bool is_plain_;
};

// A token's latent, by all threads of the block. Returns the scale of its values.
__device__ float cast_latent(const bf16* x, int n, int bits_dropped, uint8_t* out) {
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
  const RowScale scale(amax);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const auto value = static_cast<uint8_t>(scale.cast(__bfloat16_as_ushort(x[i])));
    out[i] = static_cast<uint8_t>(drop_bits(value, bits_dropped));
  }
  return scale.value();
}

// A token's rope key, by one warp. Returns the scale of its integers.
__device__ float cast_key(const bf16* x, int n, int bits_dropped, uint8_t* out) {
  uint32_t largest = 0;
  for (int i = lane_of_thread(); i < n; i += kWarpSize) {
    largest = max(largest, magnitude_bits(__bfloat16_as_ushort(x[i])));
  }
  const KeyScale scale = key_scale_of(__reduce_max_sync(kFullWarp, largest));
  for (int i = lane_of_thread(); i < n; i += kWarpSize) {
    out[i] = cast_key_value(__bfloat162float(x[i]), scale, bits_dropped);
  }
  return scale.of_integer;
}

// A token's row in its page.
struct StoredRow {
  std::byte* values;
  float* scales;  // FP8: of the latent, of the key
  bool is_there;  // else nothing is stored
};

__device__ StoredRow row_of(const Destination& to, int64_t token, KvFormat format) {
  const PagedBlocks& kv = to.kv;
  const uint4 bits = *reinterpret_cast<const uint4*>(to.places + token);  // in one load
  const TokenPlace place{.page = static_cast<int32_t>(bits.x),
                         .slot = static_cast<int32_t>(bits.y),
                         .mark = uint64_t{bits.w} << 32 | bits.z};
  std::byte* const block = kv.block(place.page);
  const int32_t value_bytes = format == KvFormat::bf16 ? int32_t{sizeof(bf16)} : 1;
  return {.values = block + int64_t{place.slot} * kv.values() * value_bytes,
          .scales = reinterpret_cast<float*>(block + PagedBlocks::scales_at(kv.values())) +
                    2 * place.slot,
          .is_there = is_stored(place, token)};
}

// A token's row into its page, by all threads of the block.
__device__ void store_row(const Destination& to, int64_t token, const bf16* latent,
                          const bf16* rope) {
  const PagedBlocks& kv = to.kv;
  const StoredRow row = row_of(to, token, kv.format);
  if (!row.is_there) return;
  if (kv.format == KvFormat::bf16) {
    bf16* out = reinterpret_cast<bf16*>(row.values);
    for (int i = static_cast<int>(threadIdx.x); i < kv.values(); i += kThreads) {
      out[i] = i < kv.latent_dim ? latent[i] : rope[i - kv.latent_dim];
    }
    return;
  }
  auto* out = reinterpret_cast<uint8_t*>(row.values);
  const float latent_scale = cast_latent(latent, kv.latent_dim, to.bits_dropped, out);
  if (threadIdx.x == 0) row.scales[0] = latent_scale;
  if (warp_of_thread() == kKeyWarp) {
    const float scale = cast_key(rope, kv.rope_dim, to.bits_dropped, out + kv.latent_dim);
    if (lane_of_thread() == 0) row.scales[1] = scale;
  }
}

// One token a block. Grid n_tokens, 288 threads, 36 bytes of shared memory. Moves 1,152 + 584
// bytes (FP8) or 2 * 1,152 (BF16) a token of 512 + 64 values: bound by the launch.
__global__ __launch_bounds__(kThreads) void kv_append_kernel(
    const __grid_constant__ AppendParams p) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const int64_t token = blockIdx.x;
  store_row(p.to, token, p.latent + token * p.latent_stride, p.rope + token * p.rope_stride);
}

// Eight values of a row from value `first` on; zeros past its end.
__device__ uint4 load_eight(const bf16* row, int first, int dim) {
  if (first >= dim) return {0, 0, 0, 0};
  return *reinterpret_cast<const uint4*>(row + first);
}

// Of so many pairs, and of all lanes: the largest magnitude, without NaN.
__device__ uint32_t larger(uint32_t a, uint32_t b) {
  return bits_of(__hmax2(*reinterpret_cast<bf16x2*>(&a), *reinterpret_cast<bf16x2*>(&b)));
}
__device__ uint32_t largest_of(const uint4& x) {
  constexpr uint32_t kMagnitudes = 0x7fff7fffU;
  return larger(larger(x.x & kMagnitudes, x.y & kMagnitudes),
                larger(x.z & kMagnitudes, x.w & kMagnitudes));
}
__device__ float amax_of_warp(const uint4& x, const uint4& y) {
  const uint32_t both = larger(larger(largest_of(x), largest_of(y)), 0);  // NaN becomes 0
  return __uint_as_float(__reduce_max_sync(kFullWarp, max(both << 16, both & 0xffff0000U)));
}

__device__ uint2 half_of(const uint4& x, int half) {
  return half == 0 ? make_uint2(x.x, x.y) : make_uint2(x.z, x.w);
}

__device__ uint4 scale_vector(const uint4& x, const uint4& weight, float factor) {
  return {scale_pair(x.x, weight.x, factor), scale_pair(x.y, weight.y, factor),
          scale_pair(x.z, weight.z, factor), scale_pair(x.w, weight.w, factor)};
}

// Whether a block does its work once ahead of its turn, on the norm's weights in place of a token
// and without a store: then its code is at hand when its turn comes.
enum class Rehearsal : uint8_t { no, yes };
constexpr int first_turn(Rehearsal rehearsal) { return rehearsal == Rehearsal::yes ? 0 : 1; }
constexpr int64_t kRehearsedTokens = 64;  // with more, blocks are many and hide each other's waits

// append_latent's row of the cache where all of it fits registers: each warp has all of the latent,
// so that it knows the sum of squares and the largest value without the others, and stores four
// values of a lane. Where they go is looked up ahead of its turn: the places were there before any
// kernel behind embed began (pointwise/copy_rows.cu), and the weights of a layer have swept them
// from the caches since the layer before.
template <KvFormat kFormat, Rehearsal kRehearsal>
__device__ void append_latent_part(const LatentParams& p, int64_t token) {
  const int dim = p.to.kv.latent_dim;
  const int part = warp_of_thread();
  const int half = part % 2;
  const int first = 8 * lane_of_thread();
  const int second = first + kLatentMax / 2;
  const int own = (part < 2 ? first : second) + 4 * half;
  const uint4 weight_x = load_eight(p.kv_a_norm, first, dim);
  const uint4 weight_y = load_eight(p.kv_a_norm, second, dim);
  const StoredRow row = row_of(p.to, token, kFormat);
  const bool has_own = own < dim && row.is_there;
  const bf16* kv_a = p.kv_a + token * p.kv_a_stride;
#pragma unroll 1
  for (int turn = first_turn(kRehearsal); turn < 2; ++turn) {
    uint4 x = weight_x;
    uint4 y = weight_y;
    if (turn == 1) {
      wait_for_earlier_kernels();
      x = load_eight(kv_a, first, dim);
      y = load_eight(kv_a, second, dim);
    }
    const float sum_x = warp_sum(sum_of_squares(x));  // in the order of `norm`
    const float sum_y = warp_sum(sum_of_squares(y));
    const float factor = norm_factor(sum_x + sum_y, dim, p.eps);
    if constexpr (kFormat == KvFormat::bf16) {
      const uint2 value = half_of(part < 2 ? x : y, half);
      const uint2 weight = half_of(part < 2 ? weight_x : weight_y, half);
      const uint2 out = {scale_pair(value.x, weight.x, factor),
                         scale_pair(value.y, weight.y, factor)};
      if (turn == 1 && has_own) *reinterpret_cast<uint2*>(row.values + 2 * own) = out;
    } else {
      x = scale_vector(x, weight_x, factor);
      y = scale_vector(y, weight_y, factor);
      const RowScale scale(amax_of_warp(x, y));
      const uint2 value = half_of(part < 2 ? x : y, half);
      uint32_t out = scale.cast(value.x) | scale.cast(value.y) << 16;
      if (p.to.bits_dropped > 0) out = drop_bits_of_four(out, p.to.bits_dropped);
      if (turn == 1 && has_own) *reinterpret_cast<uint32_t*>(row.values + own) = out;
      if (turn == 1 && threadIdx.x == 0 && row.is_there) row.scales[0] = scale.value();
    }
  }
}

// The key of that row: a pair a lane.
template <KvFormat kFormat, Rehearsal kRehearsal>
__device__ void append_key_part(const LatentParams& p, int64_t token) {
  const PagedBlocks& kv = p.to.kv;
  const int lane = lane_of_thread();
  const bool has_key = lane < p.tables.n_pairs;
  const StoredRow row = row_of(p.to, token, kFormat);
  const int64_t angle = has_key ? table_row(p.tables, token) + lane : 0;
  const float cos = has_key ? p.tables.cos[angle] : 0;
  const float sin = has_key ? p.tables.sin[angle] : 0;
  const bf16* from = p.kv_a + token * p.kv_a_stride + kv.latent_dim;
#pragma unroll 1
  for (int turn = first_turn(kRehearsal); turn < 2; ++turn) {
    const bool stores = turn == 1 && row.is_there;
    uint32_t key = 0;
    if (turn == 1) {
      wait_for_earlier_kernels();
      key = has_key ? reinterpret_cast<const uint32_t*>(from)[lane] : 0;
    }
    if (has_key) rotate_in_place(reinterpret_cast<bf16*>(&key), cos, sin);
    if constexpr (kFormat == KvFormat::bf16) {
      bf16* out = reinterpret_cast<bf16*>(row.values) + kv.latent_dim;
      if (stores && has_key) reinterpret_cast<uint32_t*>(out)[lane] = key;
    } else {
      const uint32_t largest = max(magnitude_bits(key), magnitude_bits(key >> 16));
      const KeyScale scale = key_scale_of(__reduce_max_sync(kFullWarp, largest));
      const float2 value = floats_of(key);
      const uint32_t low = cast_key_value(value.x, scale, p.to.bits_dropped);
      const uint32_t high = cast_key_value(value.y, scale, p.to.bits_dropped);
      auto* out = reinterpret_cast<uint16_t*>(row.values + kv.latent_dim);
      if (stores && has_key) out[lane] = static_cast<uint16_t>(low | high << 8);
      if (stores && lane == 0) row.scales[1] = scale.of_integer;
    }
  }
}

// The same for any shape.
__device__ void append_values(const LatentParams& p, int64_t token, float* sums) {
  __shared__ __align__(16) bf16 row[kValuesMax];
  wait_for_earlier_kernels();
  const bf16* kv_a = p.kv_a + token * p.kv_a_stride;
  const int latent_dim = p.to.kv.latent_dim;
  norm_values({.x = kv_a, .weight = p.kv_a_norm, .dim = latent_dim, .eps = p.eps}, row, sums);
  const int64_t table = table_row(p.tables, token);
  for (int i = static_cast<int>(threadIdx.x); i < p.tables.n_pairs; i += kThreads) {
    bf16* pair = row + latent_dim + 2 * i;
    pair[0] = kv_a[latent_dim + 2 * i];
    pair[1] = kv_a[latent_dim + 2 * i + 1];
    rotate_in_place(pair, p.tables.cos[table + i], p.tables.sin[table + i]);
  }
  __syncthreads();
  store_row(p.to, token, row, row + latent_dim);
}

template <Rehearsal kRehearsal>
__device__ void norm_query(const LatentParams& p, int64_t token, float* sums) {
  bf16* q = p.q_a + token * p.q_a_stride;
  if (!p.query_in_registers) {
    wait_for_earlier_kernels();
    return norm_values({.x = q, .weight = p.q_a_norm, .dim = p.q_dim, .eps = p.eps}, q, sums);
  }
  const uint4 weight = load_vector(p.q_a_norm, p.q_dim);
#pragma unroll 1
  for (int turn = first_turn(kRehearsal); turn < 2; ++turn) {
    uint4 query = weight;
    if (turn == 1) {
      wait_for_earlier_kernels();
      query = load_vector(q, p.q_dim);
    }
    if (turn > first_turn(kRehearsal)) __syncthreads();  // the sums of the turn before were read
    norm(query, weight, p.q_dim, p.eps, sums);
    if (turn == 1) store_vector(q, p.q_dim, query);
  }
}

// One token's query, or one token's row of the cache, a block: a row in registers, or of any shape.
// Grid (n_tokens, 2), or (n_tokens, 1) without a query; 160 to 288 threads, and 288; 0.1 and 2.2 KB
// of shared memory: the former fits beside two blocks of the product ahead. Moves 4 * q_dim bytes
// for a query, and what kv_append moves: bound by the launch.
template <KvFormat kFormat, Rehearsal kRehearsal>
__global__ __launch_bounds__(kThreads) void append_latent_kernel(
    const __grid_constant__ LatentParams p) {
  __shared__ float sums[kNormWarpsMax];
  let_next_kernel_begin();
  const int64_t token = blockIdx.x;
  if (blockIdx.y == 1) {
    norm_query<kRehearsal>(p, token, sums);
  } else if (warp_of_thread() < kLatentWarps) {
    append_latent_part<kFormat, kRehearsal>(p, token);
  } else if (warp_of_thread() == kLatentWarps) {
    append_key_part<kFormat, kRehearsal>(p, token);
  }
}

__global__ __launch_bounds__(kThreads) void append_values_kernel(
    const __grid_constant__ LatentParams p) {
  __shared__ float sums[kNormWarpsMax];
  let_next_kernel_begin();
  const int64_t token = blockIdx.x;
  if (blockIdx.y == 1) {
    norm_query<Rehearsal::no>(p, token, sums);
  } else {
    append_values(p, token, sums);
  }
}

bool is_at_16(const Bf16* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % 8 == 0;
}

// Rows of a page begin at 16 bytes in BF16, at 8 in FP8.
bool row_fits_registers(const ops::AppendLatent& args) {
  const int64_t latent_dim = args.kv_a_norm[0];
  const int64_t rope_dim = args.kv_a[1] - latent_dim;
  return fits_norm(latent_dim, kLatentMax / 8) && rope_dim <= 2 * kWarpSize &&
         args.kv_a[1] % 8 == 0 && is_at_16(args.kv_a.data, args.kv_a.stride[0]) &&
         is_at_16(args.kv_a_norm.data, 0);
}

Destination destination_of(const PagedKv& kv, int32_t layer,
                           const View<const TokenPlace, 1>& places, int bits_dropped) {
  return {.kv = blocks_of(kv, layer), .places = places.data, .bits_dropped = bits_dropped};
}

}  // namespace

void kv_append(const Context& context, const ops::KvAppend& args) {
  const AppendParams p{
      .to = destination_of(args.kv, args.layer, args.places, args.fp8_bits_dropped),
      .latent = device_type(args.latent.data),
      .rope = device_type(args.rope.data),
      .latent_stride = args.latent.stride[0],
      .rope_stride = args.rope.stride[0]};
  launch(context.stream, {.grid = static_cast<unsigned>(args.latent[0]), .threads = kThreads},
         kv_append_kernel, p);
}

void append_latent(const Context& context, const ops::AppendLatent& args) {
  CHECK(args.kv_a[1] <= kValuesMax && args.q_a[1] <= kQueryMax);
  const bool has_query = args.q_a.data != nullptr;
  const bool query_in_registers = fits_norm(args.q_a[1], kThreads) &&
                                  is_at_16(args.q_a.data, args.q_a.stride[0]) &&
                                  is_at_16(args.q_a_norm.data, 0);
  const LatentParams p{
      .to = destination_of(args.kv, args.layer, args.places, args.fp8_bits_dropped),
      .kv_a = device_type(args.kv_a.data),
      .kv_a_norm = device_type(args.kv_a_norm.data),
      .q_a = device_type(args.q_a.data),
      .q_a_norm = device_type(args.q_a_norm.data),
      .kv_a_stride = args.kv_a.stride[0],
      .q_a_stride = args.q_a.stride[0],
      .q_dim = args.q_a[1],
      .query_in_registers = query_in_registers,
      .tables = rotation_of({}, args.positions, args.cos, args.sin),
      .eps = args.eps};
  const dim3 grid(static_cast<unsigned>(args.kv_a[0]), has_query ? 2 : 1);
  if (!row_fits_registers(args)) {
    return launch(context.stream, {.grid = grid, .threads = kThreads}, append_values_kernel, p);
  }
  // As many as the query has vectors, when it is in registers.
  const int64_t query_threads =
      query_in_registers ? round_up(args.q_a[1] / 8, int64_t{kWarpSize}) : kThreads;
  const auto threads = static_cast<unsigned>(
      has_query ? std::max(query_threads, int64_t{kRowThreads}) : kRowThreads);
  constexpr KvFormat kFp8 = KvFormat::fp8_e4m3_584;
  const bool is_fp8 = args.kv.layout->format == kFp8;
  const auto kernel = !is_fp8 ? append_latent_kernel<KvFormat::bf16, Rehearsal::no>
                      : args.kv_a[0] <= kRehearsedTokens
                          ? append_latent_kernel<kFp8, Rehearsal::yes>
                          : append_latent_kernel<kFp8, Rehearsal::no>;
  launch(context.stream, {.grid = grid, .threads = threads}, kernel, p);
}

}  // namespace quire::cuda
