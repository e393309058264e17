#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

// Rounds to nearest even with the low `bits` bits zero, saturated at the largest such value that is
// no more than `largest`. bits > 0.
uint32_t drop_bits(uint32_t magnitude, int bits, uint32_t largest) {
  const uint32_t unit = 1U << bits;
  const uint32_t rounded = magnitude + unit / 2 - 1 + ((magnitude >> bits) & 1U);
  return std::min(rounded, largest) & ~(unit - 1);
}

// A token's latent: e4m3 values, and the scale they were divided by. `copy` has room for n.
float cast_latent(View<const Bf16, 1> x, int bits_dropped, float* copy, std::byte* out) {
  const int64_t n = x[0];
  bf16_to_float(x.data, n, copy);
  const float amax = largest_magnitude(copy, n);
  const float scale = amax == 0 ? 1.0F : amax / kFp8Max;
  auto* values = reinterpret_cast<Fp8E4m3*>(out);
  float_to_fp8(copy, n, scale, values);
  if (bits_dropped > 0) {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = values[i].bits & 0x7fU;
      if (magnitude == 0x7fU) continue;  // NaN
      values[i].bits =
          static_cast<uint8_t>((values[i].bits & 0x80U) | drop_bits(magnitude, bits_dropped, 0x7e));
    }
  }
  return scale;
}

// A token's rope key: integers, and the scale that makes values of them. `copy` has room for n.
float cast_key(View<const Bf16, 1> x, int bits_dropped, float* copy, std::byte* out) {
  const int64_t n = x[0];
  uint16_t largest = 0;  // magnitudes are in the order of their bits, NaN behind infinity
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, static_cast<uint16_t>(x(i).bits & 0x7fffU));
  }
  const KeyScale scale = key_scale(to_float(Bf16{largest}));
  if (scale.of_value == 0) {
    std::fill_n(out, n, std::byte{0});
    return scale.of_integer;
  }
  bf16_to_float(x.data, n, copy);
  auto* values = reinterpret_cast<int8_t*>(out);
  float_to_int8(copy, n, scale.of_value, values);
  if (bits_dropped > 0) {
    for (int64_t i = 0; i < n; ++i) {
      const int sign = values[i] < 0 ? -1 : 1;
      const auto magnitude = static_cast<uint32_t>(sign * values[i]);
      values[i] =
          static_cast<int8_t>(sign * static_cast<int>(drop_bits(magnitude, 2 * bits_dropped, 127)));
    }
  }
  return scale.of_integer;
}

// Where a step's rows go, of one layer.
struct Destination {
  const PagedKv& kv;
  const View<const TokenPlace, 1>& places;
  int32_t layer;
  int fp8_bits_dropped;
};

// A token's row as it is to be stored. `copy` has room for its values.
void append_token(const Destination& to, int64_t token, View<const Bf16, 1> latent,
                  View<const Bf16, 1> rope, float* copy) {
  const KvPageLayout& layout = *to.kv.layout;
  const TokenPlace& place = to.places(token);
  if (!is_stored(place, token)) return;
  std::byte* block = to.kv.pool + place.page * layout.page_bytes +
                     layout.blocks[static_cast<size_t>(to.layer)].offset;
  std::byte* row = block + layout.row_offset(place.slot);
  const auto rank = static_cast<size_t>(layout.kv_lora_rank);
  const auto rope_dim = static_cast<size_t>(layout.rope_dim);
  switch (layout.format) {
    case KvFormat::bf16:
      std::memcpy(row, latent.data, rank * sizeof(Bf16));
      std::memcpy(row + rank * sizeof(Bf16), rope.data, rope_dim * sizeof(Bf16));
      return;
    case KvFormat::fp8_e4m3_584: {
      const float scales[2] = {cast_latent(latent, to.fp8_bits_dropped, copy, row),
                               cast_key(rope, to.fp8_bits_dropped, copy, row + rank)};
      std::memcpy(block + layout.scale_offset(place.slot), scales, sizeof(scales));
      return;
    }
  }
}

}  // namespace

void kv_append(Workers& workers, const ops::KvAppend& args) {
  const int64_t n_tokens = args.latent[0];
  const int64_t values = args.kv.layout->values();
  const Destination to{args.kv, args.places, args.layer, args.fp8_bits_dropped};
  const int n_workers = workers.count_for(n_tokens * values * 8);  // about 8 steps a value
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    float* copy = scratch.take<float>(values);
    const Share tokens = share_of(worker, n_workers, n_tokens);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      append_token(to, token, args.latent.row(token), args.rope.row(token), copy);
    }
  });
}

void append_latent(Workers& workers, const ops::AppendLatent& args) {
  const int64_t n_tokens = args.kv_a[0];
  const KvPageLayout& layout = *args.kv.layout;
  const int64_t rank = layout.kv_lora_rank;
  const int64_t q_lora = args.q_a.data == nullptr ? 0 : args.q_a[1];
  const Destination to{args.kv, args.places, args.layer, args.fp8_bits_dropped};
  const int n_workers = workers.count_for(n_tokens * (layout.values() + q_lora) * 8);
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    float* copy = scratch.take<float>(layout.values());
    const auto normed = view_of(scratch.take<Bf16>(layout.values()), layout.values());
    const auto latent = normed.columns(0, rank);
    const auto rope = normed.columns(rank, layout.rope_dim);
    const Share tokens = share_of(worker, n_workers, n_tokens);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) {
      if (q_lora > 0) {
        Bf16* q = args.q_a.row(token).data;
        rms_norm_row(q, args.q_a_norm.data, q_lora, args.eps, q);
      }
      const Bf16* kv_a = args.kv_a.row(token).data;
      rms_norm_row(kv_a, args.kv_a_norm.data, rank, args.eps, latent.data);
      std::memcpy(rope.data, kv_a + rank, static_cast<size_t>(layout.rope_dim) * sizeof(Bf16));
      const int64_t position = args.positions(token);
      CHECK(0 <= position && position < args.cos[0]);
      rotate_row(args.cos.row(position).data, args.sin.row(position).data, layout.rope_dim / 2,
                 rope.data);
      append_token(to, token, latent, rope, copy);
    }
  });
}

}  // namespace quire::cpu
