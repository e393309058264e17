#include "cpu/dequantise.h"

#include <algorithm>

#include "cpu/rows.h"

namespace quire::cpu {

void dequantise_row(const WeightMatrix& weight, int64_t row, float* out) {
  switch (weight.format) {
    case WeightFormat::bf16:
      bf16_to_float(weight.bf16.row(row).data, weight.n_in, out);
      return;
    case WeightFormat::fp8_block128: {
      const Fp8E4m3* values = weight.fp8.row(row).data;
      const float* scales = weight.fp8_scale.row(row / kFp8Block).data;
      for (int64_t i = 0; i < weight.n_in; i += kFp8Block) {
        const int64_t n = std::min(kFp8Block, weight.n_in - i);
        fp8_to_float(values + i, n, scales[i / kFp8Block], out + i);
      }
      return;
    }
    case WeightFormat::int4_group:
      int4_to_float(weight.int4.row(row).data, weight.int4_scale.row(row).data, weight.group,
                    weight.n_in, out);
      return;
  }
}

}  // namespace quire::cpu
