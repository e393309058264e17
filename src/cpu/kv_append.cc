#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

// Rounds a finite e4m3 to nearest even with its low `bits` mantissa bits zero, saturated at the
// largest such value.
Fp8E4m3 drop_bits(Fp8E4m3 x, int bits) {
  const uint32_t magnitude = x.bits & 0x7fU;
  if (bits == 0 || magnitude == 0x7fU) return x;
  const uint32_t unit = 1U << bits;
  const uint32_t half_less_one = unit / 2 - 1;
  const uint32_t rounded = magnitude + half_less_one + ((magnitude >> bits) & 1U);
  const uint32_t largest = 0x7eU & ~(unit - 1);
  return {static_cast<uint8_t>((x.bits & 0x80U) | std::min(rounded & ~(unit - 1), largest))};
}

// One part of a token: e4m3 values, and the scale they were divided by.
float cast_part(const Bf16* x, int64_t n, int bits_dropped, std::byte* out) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::abs(to_float(x[i])));
  const float scale = amax == 0 ? 1.0F : amax / kFp8Max;
  for (int64_t i = 0; i < n; ++i) {
    const Fp8E4m3 value = drop_bits(to_fp8_e4m3(to_float(x[i]) / scale), bits_dropped);
    out[i] = static_cast<std::byte>(value.bits);
  }
  return scale;
}

void append_token(const ops::KvAppend& args, int64_t token) {
  const KvPageLayout& layout = *args.kv.layout;
  const int32_t position = args.tokens.position(token);
  const int32_t page = args.kv.table(args.tokens.row(token), position / kPageTokens);
  const int32_t slot = position % kPageTokens;
  CHECK(0 <= page && page < args.kv.n_pages);
  std::byte* block = args.kv.pool + page * layout.page_bytes +
                     layout.blocks[static_cast<size_t>(args.layer)].offset;
  std::byte* row = block + layout.row_offset(slot);
  const Bf16* latent = args.latent.row(token).data;
  const Bf16* rope = args.rope.row(token).data;
  const auto rank = static_cast<size_t>(layout.kv_lora_rank);
  const auto rope_dim = static_cast<size_t>(layout.rope_dim);
  switch (layout.format) {
    case KvFormat::bf16:
      std::memcpy(row, latent, rank * sizeof(Bf16));
      std::memcpy(row + rank * sizeof(Bf16), rope, rope_dim * sizeof(Bf16));
      return;
    case KvFormat::fp8_e4m3_584: {
      const float scales[2] = {cast_part(latent, layout.kv_lora_rank, args.fp8_bits_dropped, row),
                               cast_part(rope, layout.rope_dim, args.fp8_bits_dropped, row + rank)};
      std::memcpy(block + layout.scale_offset(slot), scales, sizeof(scales));
      return;
    }
  }
}

}  // namespace

void kv_append(Workers& workers, const ops::KvAppend& args) {
  workers.split(args.latent[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) append_token(args, token);
  });
}

}  // namespace quire::cpu
