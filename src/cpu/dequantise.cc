#include "cpu/dequantise.h"

namespace quire::cpu {

namespace {

void from_fp8(const WeightMatrix& weight, int64_t row, float* out) {
  const Fp8E4m3* values = weight.fp8.row(row).data;
  const float* scales = weight.fp8_scale.row(row / kFp8Block).data;
  for (int64_t i = 0; i < weight.n_in; ++i) out[i] = to_float(values[i]) * scales[i / kFp8Block];
}

void from_int4(const WeightMatrix& weight, int64_t row, float* out) {
  const uint8_t* bytes = weight.int4.row(row).data;
  const Bf16* scales = weight.int4_scale.row(row).data;
  for (int64_t i = 0; i < weight.n_in; ++i) {
    const int nibble = (bytes[i / 2] >> (4 * (i % 2))) & 0xf;
    out[i] = static_cast<float>(nibble - 8) * to_float(scales[i / weight.group]);
  }
}

}  // namespace

void dequantise_row(const WeightMatrix& weight, int64_t row, float* out) {
  switch (weight.format) {
    case WeightFormat::bf16:
      for (int64_t i = 0; i < weight.n_in; ++i) out[i] = to_float(weight.bf16.row(row).data[i]);
      return;
    case WeightFormat::fp8_block128:
      return from_fp8(weight, row, out);
    case WeightFormat::int4_group:
      return from_int4(weight, row, out);
  }
}

}  // namespace quire::cpu
